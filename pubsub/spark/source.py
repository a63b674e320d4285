"""The source: topics as rows, in ranges that executors read in parallel.

See docs/explanation/spark-exchange.md, *Named subscriptions*, K4, K5 and K6.

A stream has a named subscription for each topic. The driver reads no data. It asks for the end of each topic, takes as
much as a batch may hold, and cuts that into ranges. An offset is each topic's position, so a repeated batch has the
same records, even if a topic has moved. Spark's behaviour requires these rules:

* Making the subscription fixes the begin of a stream at the server, so a repeated question gets the same answer.
* `latestOffset` acknowledges `start`, because `start` is already in the checkpoint. `commit` comes late or never, and
  an error in it would end the query. So a failed acknowledgement is logged and repeated the next time.
* Spark compares offsets as text, so topics are always sorted by name.
"""

from __future__ import annotations

import logging
import os
import random
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

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX
from pubsub.client.requests import Proxies
from pubsub.errors import CallerError, PubsubError
from pubsub.protocol import Outcome, Position, Read
from pubsub.protocol.names import Start, format_position, parse_position
from pubsub.spark.arrow import record_batch
from pubsub.spark.options import SourceOptions
from pubsub.spark.ranges import (
    Plan,
    Range,
    RangeChanged,
    RangeLost,
    SubscriptionTaken,
    Topics,
    cut,
    gone,
    names,
    read_offsets,
    read_plan,
    read_token,
    shares,
    write_offsets,
)
from pubsub.spark.starts import parse_position_of, since, start_of

PART_RECORDS_MIN: Final = 1_000
"""Minimum records of a part, however many parts are requested."""

PART_RECORDS_MAX: Final = 1_000_000
"""Maximum records of a part, so that a repeated task repeats little."""

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Bytes requested in one answer."""

_log: Final = logging.getLogger("pubsub.spark")


@dataclass
class Part(InputPartition):
    """A range for one task, with positions as text."""

    range: Range

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.range = part


def read_part(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range; the next answer is requested before the present one is yielded.

    Raises:
        RangeLost: records of it are lost, and the option says to fail.
        RangeChanged: a merge has changed it.
        Unavailable: no answer came within the time-out.
    """
    until, client = parse_position(part.until), options.identity.client
    with options.identity.connect(options.proxies, options.timeout) as link:

        def ask(after: Position | None) -> Read:
            return Read(client, part.topic, after, until, options.subscription, BATCH_RECORDS_MAX, ANSWER_BYTES)

        after = parse_position(part.after) if part.after else None
        pending = link.start(ask(after))
        while True:
            status = link.finish(pending)
            if status.outcome not in {Outcome.SUCCESS, Outcome.EMPTY, Outcome.LOST} or status.message is None:
                lost = gone(part.topic, after, until, status, options.subscription, merged=bool(part.legs))
                if options.fail_on_data_loss or not is_before(after, status.position):
                    raise lost
                _log.warning("%s; continuing with the remaining records", lost)
                after = status.position
                if after == until or is_before(until, after):
                    return
                pending = link.start(ask(after))
                continue
            after = status.message
            if status.message != until:
                pending = link.start(ask(status.message))
            if status.outcome is Outcome.SUCCESS:
                yield record_batch(part.topic, status, headers=options.headers)
            elif status.outcome is Outcome.LOST:
                lost = RangeLost(
                    part.topic,
                    format_position(status.first),
                    format_position(status.message),
                    "the server cannot deliver them any more; option failOnDataLoss=false continues without them",
                )
                if options.fail_on_data_loss:
                    raise lost
                _log.warning("%s", lost)
            if status.message == until:
                break
        if part.legs:
            check_unchanged(link, part)


def check_unchanged(link: Proxies, part: Range) -> None:
    """Check after reading that a range still is as planned.

    Raises:
        RangeChanged: it is not.
        Unavailable: see `Proxies.ask`.
    """
    after, until = parse_position(part.after) if part.after else None, parse_position(part.until)
    status = link.ask(Read(link.asker.client, part.topic, after, until))
    if status.outcome is Outcome.BEHIND and is_before(after, status.position):
        return  # The records were deleted after they were read, because of their age or for room.
    if status.outcome is not Outcome.SUCCESS or read_plan(status).between(0, part.records) != part.legs:
        raise RangeChanged(part.topic)


def is_before(position: Position | None, other: Position | None) -> bool:
    """Return True if a position is before another one of the same log, as after a deletion of old records."""
    return position is not None and other is not None and position[0] == other[0] and position[1] < other[1]


def parts_of(options: SourceOptions, plans: Mapping[str, tuple[Position | None, Plan]]) -> list[Part]:
    """Cut ranges for tasks: as many as requested, none too small and none too large."""
    total = sum(plan.records for _, plan in plans.values())
    wanted = options.partitions_min or os.cpu_count() or 1
    size = min(PART_RECORDS_MAX, max(-(-total // wanted), 1 if options.partitions_min else PART_RECORDS_MIN))
    begins = {topic: plan.stands if plan.lost else after for topic, (after, plan) in plans.items()}
    return [Part(part) for topic in sorted(plans) for part in cut(topic, begins[topic], plans[topic][1], size)]


class _Asking:
    """Shared by both readers: a connection that is made on first use and is not pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._link: Proxies | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_link": None}

    @property
    def topics(self) -> Topics:
        if self._link is None:
            options = self.options
            self._link = options.identity.connect(options.proxies, options.timeout)
        options = self.options
        return Topics(self._link, options.subscription, fail_on_data_loss=options.fail_on_data_loss)

    def renew(self) -> None:
        """Use the key file's new key if it was replaced."""
        if self._link is not None and self._link.asker.pair != self.options.identity.pair():
            self.close()

    def named(self) -> list[str]:
        """Return the topics to read; it may be empty for a pattern."""
        options = self.options
        if options.subscribe:
            return list(options.subscribe)
        return [topic for topic in self.topics.listed() if re.fullmatch(options.pattern, topic)]

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class StreamReader(_Asking, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._acknowledged: dict[str, tuple[str, int]] = {}
        self._taken_over: set[str] = set()
        self._fresh = random.SystemRandom().randrange(1, NUMBER_MAX)
        """Token for a checkpoint without one."""
        self._target: dict[str, Position | None] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the begin of the stream; the answer is the same each time."""
        topics = self.named()
        if not topics:
            raise CallerError(f"no topic matches subscribePattern {self.options.pattern}")
        return write_offsets({topic: self._begin(topic) for topic in topics})

    def _begin(self, topic: str) -> Position | None:
        """Make the subscription if it does not exist; return the begin of the stream on a topic."""
        start = start_of(self.options, topic, "latest")
        stands = self.topics.subscribe(topic, self._edge(topic))
        if not isinstance(start, tuple):
            return stands
        position = start
        plan = self._plan(topic, position)  # It raises if the server does not know the position.
        return plan.stands if plan.lost else position

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of one batch if the trigger sets none."""
        options = self.options
        if options.records_max:
            return ReadMaxRows(options.records_max)
        return ReadMaxBytes(options.bytes_max) if options.bytes_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the present ends of the topics; this run stops there.

        With a pattern, only the checkpoint tells which topics are new, and new topics are read from their beginning.
        So these topics are not subscribed to here, and their ends are recorded at the first batch.
        """
        self._target = {}
        for topic in self.options.subscribe:
            self.topics.subscribe(topic, self._edge(topic))
            self._target[topic] = self.topics.plan(topic, None).latest

    def _edge(self, topic: str) -> str | int:
        """Return the begin of a new subscription. A position lies behind that."""
        start = start_of(self.options, topic, "latest")
        return "earliest" if isinstance(start, tuple) else start

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the end of the next batch, and acknowledge its start, which is in the checkpoint.

        Raises:
            SubscriptionTaken: another checkpoint acknowledges the subscription.
        """
        self.renew()
        self._acknowledge(start)
        known, token = read_offsets(start), read_token(start)
        begin = {topic: position for topic, position in known.items() if self._is_read(topic)}
        for topic in self._come(begin, token):
            begin[topic] = None
        if self._target is not None:
            for topic in begin:
                if topic not in self._target:
                    self._target[topic] = self.topics.plan(topic, None).latest
        records, size = self._limits(limit)
        plans = {topic: self._next(topic, after, size, token) for topic, after in begin.items()}
        ends = (
            self._within(begin, plans, size, token) if size else {topic: plan.latest for topic, plan in plans.items()}
        )
        if records:
            counts = {topic: plan.records_until(ends[topic]) if plan.legs else 0 for topic, plan in plans.items()}
            for topic, count in shares(records, counts).items():
                if count < counts[topic]:
                    ends[topic] = plans[topic].at(count) if count else begin[topic] or plans[topic].stands
        # A start that is not in the checkpoint yet has no token. This end will be the first offset in it.
        return write_offsets(ends, token or (self._fresh if ends != known else 0))

    def _is_read(self, topic: str) -> bool:
        """Return True if a topic of the offset is still selected; otherwise it is acknowledged once more and then
        dropped.
        """
        options = self.options
        return topic in options.subscribe or bool(options.pattern and re.fullmatch(options.pattern, topic))

    def _come(self, known: Mapping[str, Position | None], token: int) -> list[str]:
        """Return newly selected topics. A topic that the pattern matches only now is read from its beginning, because
        none of it was read yet. A given position is acknowledged: the batch's start does not have the topic, so its
        first range begins at the subscription's position.
        """
        come = [topic for topic in self._target or self.named() if topic not in known]
        for topic in come:
            begin = self.topics.subscribe(topic, "earliest") if self.options.pattern else self._begin(topic)
            self._acknowledge_one(topic, begin, token)
        return come

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """Return the maximum records and bytes of the next batch; 0 for no limit."""
        if isinstance(limit, ReadAllAvailable):
            return 0, 0
        if isinstance(limit, ReadMaxRows):
            return limit.max_rows, self.options.bytes_max
        if isinstance(limit, ReadMaxBytes):
            return 0, limit.max_bytes
        return self.options.records_max, self.options.bytes_max

    def _next(self, topic: str, after: Position | None, bytes_max: int, token: int) -> Plan:
        return self._plan(topic, after, (self._target or {}).get(topic), bytes_max, token)

    def _plan(
        self, topic: str, after: Position | None, until: Position | None = None, bytes_max: int = 0, token: int = 0
    ) -> Plan:
        """Return the plan of a range.

        Raises:
            SubscriptionTaken: the range is gone because another checkpoint has acknowledged it.
            RangeLost, Unavailable: see `Topics.plan`.
        """
        try:
            plan = self.topics.plan(topic, after, until, bytes_max)
        except RangeLost:
            self._check_ours(topic, token)
            raise
        if plan.lost:
            self._check_ours(topic, token)
        return plan

    def _check_ours(self, topic: str, token: int) -> None:
        """Check that no other query has acknowledged the missing range.

        Raises:
            SubscriptionTaken: another query has.
        """
        try:
            self._acknowledge_one(topic, None, token)
        except SubscriptionTaken:
            raise
        except PubsubError as error:
            _log.warning("subscription %s: %s", self.options.subscription, error)

    def _within(
        self, begin: Mapping[str, Position | None], plans: Mapping[str, Plan], bytes_max: int, token: int
    ) -> dict[str, Position | None]:
        sizes = {topic: plan.bytes for topic, plan in plans.items()}
        ends = {}
        for topic, share in shares(bytes_max, sizes).items():
            if share == sizes[topic]:
                ends[topic] = plans[topic].latest
            elif share:
                ends[topic] = self._next(topic, begin[topic], share, token).within
            else:
                ends[topic] = begin[topic] or plans[topic].stands
        return ends

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return the ranges of a batch; equal offsets always give the same records."""
        begin, token = read_offsets(start), read_token(end)
        plans = {}
        for topic, until in read_offsets(end).items():
            after = begin.get(topic)
            if after != until:
                plans[topic] = after, self._plan(topic, after, until, token=token)
        return parts_of(self.options, plans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range)

    def commit(self, end: dict[str, str]) -> None:
        """Acknowledge everything up to this offset."""
        self._acknowledge(end)

    def _acknowledge(self, offset: Mapping[str, str]) -> None:
        token = read_token(offset)
        for topic, position in read_offsets(offset).items():
            if self._acknowledged.get(topic) == (offset[topic], token):
                continue
            try:
                self._acknowledge_one(topic, position, token)
                self._acknowledged[topic] = offset[topic], token
            except SubscriptionTaken:
                raise
            except PubsubError as error:
                _log.warning("subscription %s: not acknowledged now: %s", self.options.subscription, error)

    def _acknowledge_one(self, topic: str, position: Position | None, token: int) -> None:
        take_over = self.options.take_over and topic not in self._taken_over
        self.topics.acknowledge(topic, position, token, take_over=take_over)
        self._taken_over.add(
            topic
        )  # Take over only once, so that of two queries that take over from each other one ends.

    def stop(self) -> None:
        """Release the sockets; nothing depends on this call."""
        self.close()


class BatchReader(_Asking, DataSourceReader):
    """Reads a range of topics once."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the present ranges of all topics."""
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
        starting = start_of(options, topic, "earliest")
        ending = options.ending if isinstance(options.ending, str) else options.ending.get(topic, "latest")
        plan = whole = self.topics.plan(topic, None)
        if (starting, ending) != ("earliest", "latest"):
            # Leave edges out of the request where possible: then they belong to the same answer, even after a merge.
            after = self._after(topic, starting, whole)
            until = whole.stands if ending == "earliest" else parse_position_of(ending)
            if starting == ending == "latest":
                until = after
            plan = self.topics.plan(topic, after, until)
            if after is not None:
                return after, plan
        return plan.stands, plan

    def _after(self, topic: str, starting: Start, whole: Plan) -> Position | None:
        if isinstance(starting, int):
            return self.topics.before(topic, starting)
        if starting == "latest":
            return whole.latest
        return starting if isinstance(starting, tuple) else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, on an executor."""
        assert isinstance(partition, Part)
        start = start_of(self.options, partition.range.topic, "earliest")
        batches = read_part(self.options, partition.range)
        return since(batches, start) if isinstance(start, int) else batches
