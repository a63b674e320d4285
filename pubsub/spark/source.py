"""The source: topics as rows, in ranges that executors read in parallel (docs/architecture.md, *Subscribe and get*).

A stream stands on a named subscription for each topic. The driver reads no data: it asks how far each topic goes,
takes as much of that as a batch may hold, and cuts it into ranges. An offset is each topic's position, so that a batch
that is replayed is the same records, wherever the topic is by then. What follows from the engine's habits:

* Where a stream begins is pinned at the broker by making the subscription, so asking again gives the same answer.
* `start` of `latestOffset` is in the checkpoint already and is acknowledged there; `commit` comes late or never, and an
  error in it would end the query, so what cannot be acknowledged now is logged and acknowledged the next time.
* Offsets are compared as text, so topics always stand in the order of their names.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pubsub.base.limits import BATCH_RECORDS_MAX
from pubsub.errors import CallerError, PubsubError
from pubsub.protocol import Outcome, Position, Read
from pubsub.protocol.names import format_position, parse_position
from pubsub.spark.arrow import record_batch
from pubsub.spark.link import ProxyConnection
from pubsub.spark.options import SourceOptions
from pubsub.spark.ranges import (
    Plan,
    Range,
    RangeLost,
    Topics,
    cut,
    gone,
    names,
    read_offsets,
    shares,
    write_offsets,
)

PART_RECORDS_MIN: Final = 1_000
"""A range is not cut into smaller parts than this, however many are asked for."""

PART_RECORDS_MAX: Final = 1_000_000
"""A part is never larger, so that a task that is tried again repeats little."""

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Bytes asked for in one answer."""

_log: Final = logging.getLogger("pubsub.spark")


@dataclass
class Part(InputPartition):
    """A range for one task, with the positions as text."""

    range: Range

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.range = part


def read_part(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range, fetched one answer ahead of what is handed on.

    Raises:
        RangeLost: records of it are lost, and that is to end the query.
        Unavailable: nobody answered within the time-out.
    """
    until, client = parse_position(part.until), options.identity.client
    with ProxyConnection(options.proxies, options.timeout, identity=options.identity) as link:

        def ask(after: Position | None) -> Read:
            return Read(client, part.topic, after, until, options.subscription, BATCH_RECORDS_MAX, ANSWER_BYTES)

        pending = link.start(ask(parse_position(part.after) if part.after else None))
        while True:
            status = link.finish(pending)
            if status.outcome not in {Outcome.SUCCESS, Outcome.EMPTY, Outcome.LOST} or status.message is None:
                raise gone(part.topic, parse_position(part.after) if part.after else None, until, status)
            if status.message != until:
                pending = link.start(ask(status.message))
            if status.outcome is Outcome.SUCCESS:
                yield record_batch(part.topic, status, headers=options.headers)
            elif status.outcome is Outcome.LOST:
                lost = RangeLost(
                    part.topic,
                    format_position(status.first),
                    format_position(status.message),
                    "the server cannot hand them out any more; option failOnDataLoss=false goes on without them",
                )
                if options.fail_on_data_loss:
                    raise lost
                _log.warning("%s", lost)
            if status.message == until:
                return


def parts_of(options: SourceOptions, plans: Mapping[str, tuple[Position | None, Plan]]) -> list[Part]:
    """Ranges cut for tasks: as many as asked for, none too small and none too large."""
    total = sum(plan.records for _, plan in plans.values())
    wanted = options.partitions_min or os.cpu_count() or 1
    size = min(PART_RECORDS_MAX, max(-(-total // wanted), 1 if options.partitions_min else PART_RECORDS_MIN))
    return [Part(part) for topic, (after, plan) in sorted(plans.items()) for part in cut(topic, after, plan, size)]


class _Asking:
    """What both readers share: a link that is made when it is first needed and does not travel."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._link: ProxyConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_link": None}

    @property
    def topics(self) -> Topics:
        if self._link is None:
            options = self.options
            self._link = ProxyConnection(options.proxies, options.timeout, identity=options.identity)
        return Topics(self._link, self.options.subscription)

    def renew(self) -> None:
        """Where the key file holds another key by now, go on with that one."""
        if self._link is not None and self._link.pair != self.options.identity.pair():
            self.close()

    def named(self) -> list[str]:
        """The topics that are read.

        Raises:
            CallerError: the pattern matches none.
        """
        options = self.options
        if options.subscribe:
            return list(options.subscribe)
        return [topic for topic in self.topics.listed() if re.fullmatch(options.pattern, topic)]

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class StreamReader(_Asking, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream.

    Args:
        options: checked.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._acknowledged: dict[str, str] = {}
        self._target: dict[str, Position | None] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Where the stream begins: asked several times, answered the same each time."""
        topics = self.named()
        if not topics:
            raise CallerError(f"no topic matches subscribePattern {self.options.pattern}")
        return write_offsets({topic: self._begin(topic) for topic in topics})

    def _begin(self, topic: str) -> Position | None:
        """Make the subscription, if it is not there; where the stream begins on a topic."""
        starting = self.options.starting
        start = starting if isinstance(starting, str) else starting.get(topic, "latest")
        edge = start if start in {"earliest", "latest"} else "earliest"
        stands = self.topics.subscribe(topic, edge)
        if start == edge:
            return stands
        position = parse_position(start)
        self.topics.plan(topic, position)  # `plan` raises where the server knows no such position.
        return position

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What one batch may hold, unless the trigger says otherwise."""
        options = self.options
        if options.records_max:
            return ReadMaxRows(options.records_max)
        return ReadMaxBytes(options.bytes_max) if options.bytes_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note how far the topics go now: this run ends there.

        Which of those that a pattern matches are new only the checkpoint says, and new ones are read from their
        beginning: so these are not subscribed to here, and are noted when the first batch is asked for.
        """
        self._target = {}
        for topic in self.options.subscribe:
            self.topics.subscribe(topic, self._edge(topic))
            self._target[topic] = self.topics.plan(topic, None).latest

    def _edge(self, topic: str) -> str:
        starting = self.options.starting
        start = starting if isinstance(starting, str) else starting.get(topic, "latest")
        return start if start in {"earliest", "latest"} else "earliest"

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """How far the next batch goes; acknowledges where it begins, which is in the checkpoint."""
        self.renew()
        self._acknowledge(start)
        begin = read_offsets(start)
        for topic in self._come(begin):
            begin[topic] = None
        if self._target is not None:
            for topic in begin:
                if topic not in self._target:
                    self._target[topic] = self.topics.plan(topic, None).latest
        records, size = self._limits(limit)
        plans = {topic: self._plan(topic, after, size) for topic, after in begin.items()}
        ends = self._within(begin, plans, size) if size else {topic: plan.latest for topic, plan in plans.items()}
        if records:
            counts = {topic: plan.records_until(ends[topic]) if plan.legs else 0 for topic, plan in plans.items()}
            for topic, count in shares(records, counts).items():
                if count < counts[topic]:
                    ends[topic] = plans[topic].at(count) if count else begin[topic] or plans[topic].stands
        return write_offsets(ends)

    def _come(self, known: Mapping[str, Position | None]) -> list[str]:
        """Topics that are to be read and were not so far. What the pattern matches only now is read from its
        beginning: none of it was seen yet. A position that is named is acknowledged: the batch's start does not have
        the topic, so its first range begins where the subscription stands."""
        come = [topic for topic in self._target or self.named() if topic not in known]
        for topic in come:
            if self.options.pattern:
                self.topics.subscribe(topic, "earliest")
            elif (begin := self._begin(topic)) is not None:
                self.topics.acknowledge(topic, begin)
        return come

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Records and bytes that the next batch may hold; 0: any number."""
        if isinstance(limit, ReadAllAvailable):
            return 0, 0
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.bytes_max
        if isinstance(limit, ReadMaxBytes):
            return 0, limit.max_bytes
        return self.options.records_max, self.options.bytes_max

    def _plan(self, topic: str, after: Position | None, bytes_max: int) -> Plan:
        until = (self._target or {}).get(topic)
        return self.topics.plan(topic, after, until, bytes_max)

    def _within(
        self, begin: Mapping[str, Position | None], plans: Mapping[str, Plan], bytes_max: int
    ) -> dict[str, Position | None]:
        sizes = {topic: plan.bytes for topic, plan in plans.items()}
        ends = {}
        for topic, share in shares(bytes_max, sizes).items():
            if share == sizes[topic]:
                ends[topic] = plans[topic].latest
            elif share:
                ends[topic] = self._plan(topic, begin[topic], share).within
            else:
                ends[topic] = begin[topic] or plans[topic].stands
        return ends

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The ranges of a batch; for the same offsets the same records, however often it is asked."""
        begin = read_offsets(start)
        plans = {}
        for topic, until in read_offsets(end).items():
            after = begin.get(topic)
            if after != until:
                plans[topic] = after, self.topics.plan(topic, after, until)
        return parts_of(self.options, plans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range)

    def commit(self, end: dict[str, str]) -> None:
        """What is up to here is not needed any more."""
        self._acknowledge(end)

    def _acknowledge(self, offset: Mapping[str, str]) -> None:
        for topic, text in offset.items():
            if self._acknowledged.get(topic) == text:
                continue
            try:
                position = parse_position(text)
                if position is not None:
                    self.topics.acknowledge(topic, position)
                self._acknowledged[topic] = text
            except PubsubError as error:
                _log.warning("subscription %s: not acknowledged now: %s", self.options.subscription, error)

    def stop(self) -> None:
        """Release the sockets; nothing depends on this being called."""
        self.close()


class BatchReader(_Asking, DataSourceReader):
    """Reads a range of topics once."""

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges of all topics, as they are now."""
        topics = self.named()
        if not topics:
            raise CallerError(f"no topic matches subscribePattern {self.options.pattern}")
        try:
            plans = {topic: self._plan(topic) for topic in topics}
        finally:
            self.close()
        _log.info("reading %s", names(topics))
        return parts_of(self.options, plans)

    def _plan(self, topic: str) -> tuple[Position | None, Plan]:
        options = self.options
        starting = options.starting if isinstance(options.starting, str) else options.starting.get(topic, "earliest")
        ending = options.ending if isinstance(options.ending, str) else options.ending.get(topic, "latest")
        whole = self.topics.plan(topic, None)
        after = {"earliest": whole.stands, "latest": whole.latest}.get(starting) or parse_position_of(starting)
        until = {"earliest": whole.stands, "latest": whole.latest}.get(ending) or parse_position_of(ending)
        return after, whole if (after, until) == (whole.stands, whole.latest) else self.topics.plan(topic, after, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range)


def parse_position_of(text: str) -> Position | None:
    """A position of an option; None for an edge of a topic that holds nothing."""
    return None if text in {"earliest", "latest"} else parse_position(text)
