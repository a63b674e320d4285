"""The sink: tasks stage rows, the driver publishes them, each batch once (docs/explanation/spark-exchange.md, *Sinks*).

A task stages its rows under a name that no other try has; Spark's own attempt numbers begin again in a new driver. The
commit names the valid stages, topic by topic. A batch that was published before is a duplicate as a whole. Spark sets
properties with the query and the batch for each task. They travel to the driver in the commit message, because the
driver does not have them.

The rule is docs/explanation/spark-exchange.md, K12.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pubsub.client.requests import Asked, Proxies
from pubsub.errors import ConfigurationError, PubsubError, StateCopied, Unavailable
from pubsub.protocol import Outcome, Publish, Stage, Status
from pubsub.protocol.names import check_new_topic
from pubsub.spark.arrow import headers_of, pieces, values_of
from pubsub.spark.connections import lend
from pubsub.spark.options import SinkOptions

WINDOW: Final = 4
"""Pieces of one stage that may be unanswered at a time."""

ROW_BITS: Final = 32
"""Bits of a counter for the row; the rest is the batch (docs/explanation/spark-exchange.md, *Sinks*)."""

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


COPIED: Final = (
    "this checkpoint is an older copy, or is used twice, and rows would be left out; use the newer one, or a new one"
)
USED: Final = (
    "a sink's batch numbers must rise, and the rows of this batch are not written; use a higher batchId, or"
    " another sink"
)
"""Reasons for a batch number that is too old: of a stream, and of a batch job."""


class Restage(PubsubError):
    """Staged rows of a batch are missing, so the batch must be written again."""

    def __init__(self, topic: str, batch: int, reason: str) -> None:
        self.topic, self.batch, self.reason = topic, batch, reason
        super().__init__(topic, batch, reason)

    def __str__(self) -> str:
        return f"{self.topic}: batch {self.batch} is not staged in full ({self.reason}); start the query again"


class CheckpointOld(PubsubError):
    """A query uses an older copy of its checkpoint, or a batch job repeats an earlier number."""

    exit_code = StateCopied.exit_code

    def __init__(self, topic: str, batch: int, last: int, why: str = COPIED) -> None:
        self.topic, self.batch, self.last, self.why = topic, batch, last, why
        super().__init__(topic, batch, last, why)

    def __str__(self) -> str:
        return f"{self.topic}: batch {self.batch} was published before, and batch {self.last} after it: {self.why}"


class BatchTaken(PubsubError):
    """A batch job uses the number of a batch that was published before with other rows."""

    exit_code = StateCopied.exit_code

    def __init__(self, topic: str, batch: int, published: int, rows: int) -> None:
        self.topic, self.batch, self.published, self.rows = topic, batch, published, rows
        super().__init__(topic, batch, published, rows)

    def __str__(self) -> str:
        return (
            f"{self.topic}: batch {self.batch} of this sink was published before with other rows ({self.published:,}"
            f" then, {self.rows:,} now), and these are not written; use a higher batchId, or another sink"
        )


@dataclass
class Staged(WriterCommitMessage):
    """The result of a task: for each topic one attempt and its rows."""

    publisher: str
    batch: int
    attempt: str
    rows: dict[str, int]


def publisher_of(query: str) -> str:
    """Return the second part of a publisher's name, 16 hex digits from the query's identity."""
    return hashlib.sha256(query.encode()).hexdigest()[:16]


def check_columns(columns: Sequence[str], options: SinkOptions) -> None:
    """Check that rows with these columns can be written.

    Raises:
        ConfigurationError: they cannot.
    """
    if "value" not in columns:
        raise ConfigurationError(f"a row needs a column value, binary or string; there are {', '.join(columns)}")
    if not options.topic and "topic" not in columns:
        raise ConfigurationError("give the topic as option topic, or add a column topic")
    if options.topic and "topic" in columns:
        raise ConfigurationError("the topic is given by option topic and by column topic; drop one of them")
    extra = sorted(set(columns) - {"value", "topic", "key", "headers"})
    if extra:
        raise ConfigurationError(
            f"column {', '.join(extra)} would be lost: a message has a value, a key and headers only; drop it first"
        )


class Attempt:
    """One try of a task to stage its rows.

    Args:
        publisher, batch: publisher and batch of the rows.
        partition: number of the task's partition.
    """

    def __init__(self, link: Proxies, options: SinkOptions, publisher: str, batch: int, partition: int) -> None:
        self._link, self._options = link, options
        self._publisher, self._batch = publisher, batch
        self._client = options.identity.client
        self.name = f"{partition}.{uuid.uuid4().hex}"
        self.rows: dict[str, int] = {}
        self._sent: dict[str, deque[Asked]] = {}
        self._published: set[str] = set()

    def write(self, rows: pa.RecordBatch) -> None:
        """Stage rows.

        Raises:
            ValueError, TooLarge: a row cannot be a message.
            Unavailable, Refused, Restage: the rows could not be staged.
        """
        values = values_of(rows, "value")
        keys = values_of(rows, "key") if "key" in rows.schema.names else None
        headers = headers_of(rows)
        if self._options.topic:
            self._stage(self._options.topic, values, keys, headers)
            return
        topics = rows.column("topic")
        for topic in topics.unique().to_pylist():
            if topic is None:
                raise ValueError("column topic is null in some row")
            its = pc.equal(topics, topic)
            metadata = [None if column is None else column.filter(its) for column in (keys, headers)]
            self._stage(check_new_topic(topic), values.filter(its), *metadata)

    def _stage(self, topic: str, values: pa.Array, keys: pa.Array | None, headers: pa.Array | None) -> None:
        sent = self._sent.setdefault(topic, deque())
        for count, body in pieces(values, keys, headers):
            first = self.rows.get(topic, 0)
            self.rows[topic] = first + count
            # Count rows of a published batch too: another server, which does not know of that, may publish them.
            if topic in self._published:
                continue
            stage = Stage(
                self._client, topic, self._batch, self._publisher, self.name, first, count, crc32(body), body=body
            )
            sent.append(self._link.start(stage))
            while len(sent) >= WINDOW:
                self._settle(topic, sent.popleft())

    def _settle(self, topic: str, pending: Asked) -> None:
        status = self._link.finish(pending)
        if status.outcome is Outcome.GAP:  # The piece may have overtaken the previous one, which is answered by now.
            status = self._link.ask(pending.request)
        if status.outcome is Outcome.DUPLICATE:
            self._published.add(topic)
        elif status.outcome is not Outcome.SUCCESS:
            raise Restage(topic, self._batch, f"answered {status.outcome}")

    def finish(self) -> Staged:
        """Wait until everything is staged."""
        for topic, sent in self._sent.items():
            while sent:
                self._settle(topic, sent.popleft())
        return Staged(self._publisher, self._batch, self.name, self.rows)


def stage(options: SinkOptions, publisher: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Stage all rows of a task; return the commit message."""
    context = TaskContext.get()
    with lend(options.identity, options.proxies, options.timeout) as link:
        attempt = Attempt(link, options, publisher, batch, 0 if context is None else context.partitionId())
        for each in rows:
            attempt.write(each)
        return attempt.finish()


def publish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> dict[str, Status]:
    """Publish the tasks' stages, in the order of the topics' names; each topic in one step.

    Returns:
        The answers by topic.

    Raises:
        Restage: staged rows are missing.
        Unavailable: no answer came within the time-out.
    """
    staged = [message for message in messages if isinstance(message, Staged)]
    if not staged:
        return {}
    publisher = staged[0].publisher
    if any((one.publisher, one.batch) != (publisher, batch) for one in staged):
        raise ConfigurationError("commit messages of different queries or batches came together")
    topics = {options.topic} if options.topic else {topic for one in staged for topic in one.rows}
    answers = {}
    with lend(options.identity, options.proxies, options.timeout) as link:
        for topic in sorted(topics):
            stages = {one.attempt: one.rows[topic] for one in staged if one.rows.get(topic)}
            status = link.ask(Publish(options.identity.client, topic, batch, publisher, stages))
            if status.outcome is Outcome.RESTAGE:
                raise Restage(topic, batch, status.reason.replace("_", " "))
            if status.outcome not in {Outcome.SUCCESS, Outcome.DUPLICATE}:
                raise Unavailable("publish", topic, options.timeout, f"answered {status.outcome}")
            answers[topic] = status
    return answers


def check_last(topic: str, status: Status, batch: int, why: str) -> None:
    """Check that no later batch is published.

    Raises:
        CheckpointOld: a later one is, so the server took this batch for a repeat and left it out.
    """
    last = (status.last >> ROW_BITS) - 1
    if last > batch:
        raise CheckpointOld(topic, batch, last, why)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage a task's rows, on an executor.

        Raises:
            RuntimeError: Spark does not provide the query and the batch.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_PROPERTY) if context else None
        batch = context.getLocalProperty(BATCH_PROPERTY) if context else None
        if not query or batch is None:
            raise RuntimeError(
                f"this Spark sets no task property {QUERY_PROPERTY} or {BATCH_PROPERTY}, which identify a"
                " repeated batch; use foreachBatch with df.write and the options sink and batchId"
            )
        return stage(self.options, publisher_of(query), int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch, on the driver.

        Raises:
            CheckpointOld: later batches are published. Spark repeats only its last batch, so these are other rows than
                those published under the number.
        """
        for topic, status in publish(self.options, messages, batchId).items():
            check_last(topic, status, batchId, COPIED)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Keep the staged rows: the next publish of the batch drops them, or a day of silence."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once.

    Args:
        options: with a batch number and a sink's name a repeat is recognized; without them each run is new.
    """

    def __init__(self, options: SinkOptions, *, overwrite: bool = False) -> None:
        if overwrite:
            raise ConfigurationError("a topic cannot be overwritten; use mode append")
        self.options = options
        self._batch = 0 if options.batch is None else options.batch
        # A sink with a batch number always has the same identity; any other run has a unique one.
        identity = f"batch {options.sink}" if options.batch is not None else f"run {uuid.uuid4().hex}"
        self._publisher = publisher_of(identity)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage a task's rows, on an executor."""
        return stage(self.options, self._publisher, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows, on the driver.

        Raises:
            CheckpointOld: a later batch of the sink is published.
            BatchTaken: this batch is published with more or fewer rows. The same number of rows counts as the same
                batch, as in a job that is run again.
        """
        for topic, status in publish(self.options, messages, self._batch).items():
            check_last(topic, status, self._batch, USED)
            rows = sum(one.rows.get(topic, 0) for one in messages if isinstance(one, Staged))
            published = (status.last & (1 << ROW_BITS) - 1) + 1  # An empty batch counts as one row.
            if status.outcome is Outcome.DUPLICATE and rows and rows != published:
                raise BatchTaken(topic, self._batch, published, rows)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the staged rows: a day of silence drops them."""
