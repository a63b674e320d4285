"""The source: topics as rows, in ranges that executors read in parallel.

See docs/explanation/spark-exchange.md, *Named subscriptions*, K4, K5, K6, K15 and K17.

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
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import CallerError, ConfigurationError, PubsubError
from pubsub.protocol import Position
from pubsub.spark.asking import Asking
from pubsub.spark.options import SourceOptions
from pubsub.spark.progress import BEHIND
from pubsub.spark.ranges import (
    NAME,
    Plan,
    RangeLost,
    SubscriptionTaken,
    read_name,
    read_offsets,
    read_token,
    shares,
    write_offsets,
)
from pubsub.spark.reading import Part, parts_of, read_part
from pubsub.spark.starts import start_of
from pubsub.spark.syncing import Directories

_log: Final = logging.getLogger("pubsub.spark")


class StreamReader(Asking, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream.

    Args:
        clock: monotonic time in seconds, for `maxTriggerDelay`.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options)
        self._clock, self._batch_at = clock, float("-inf")
        self._latest: dict[str, Any] | None = None
        self._own_name: dict[str, str] = {}
        self._acknowledged: dict[str, tuple[str, int]] = {}
        self._written = Directories(options.sync_directories)
        self._taken_over: set[str] = set()
        self._fresh = random.SystemRandom().randrange(1, NUMBER_MAX)
        """Token for a checkpoint without one."""
        self._target: dict[str, Position | None] | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the begin of the stream; the answer is the same each time."""
        topics = self.named()
        if not topics:
            raise CallerError(f"no topic matches subscribePattern {self.options.pattern}")
        if self.options.group_prefix:
            return {}  # The subscription's name comes first, and then the topics; see `_named`.
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

        Only the checkpoint tells the name of a subscription that was made for the query. With a pattern, only the
        checkpoint tells which topics are new, and new topics are read from their beginning. So these topics are not
        subscribed to here, and their ends are recorded at the first batch.
        """
        self._target = {}
        for topic in self.options.subscribe if self.subscription else ():
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
        if (first := self._named(start)) is not None:
            return first
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
        waits = self._waits(plans, limit)
        self._report(plans, begin if waits else ends)
        if waits:
            return start
        # A start that is not in the checkpoint yet has no token. This end will be the first offset in it.
        return write_offsets(ends, token or (self._fresh if ends != known else 0)) | self._own_name

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the last positions of the topics, and the numbers of records behind the batch that was planned last.

        Spark shows it as `latestOffset` of a query's progress. It sends no request, so it cannot end the query.
        """
        return self._latest

    def _report(self, plans: Mapping[str, Plan], ends: Mapping[str, Position | None]) -> None:
        behind = {topic: plan.records_after(ends[topic]) for topic, plan in sorted(plans.items())}
        self._latest = {**write_offsets({topic: plan.latest for topic, plan in plans.items()}), BEHIND: behind}

    def _waits(self, plans: Mapping[str, Plan], limit: ReadLimit) -> bool:
        """Return True if the next batch waits for more records. A run that has an end takes what is there."""
        records = sum(plan.records for plan in plans.values())
        if not records or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now, options = self._clock(), self.options
        if records < options.records_min and now < self._batch_at + options.delay_max:
            return True
        self._batch_at = now
        return False

    def _named(self, offset: Mapping[str, str]) -> dict[str, str] | None:
        """Return the first offset of a new query with a prefix, with a new name and no topics; otherwise None.

        So a subscription is made only when its name is in the checkpoint, and no start leaves one behind.
        """
        prefix = self.options.group_prefix
        if not prefix or read_name(offset) or read_offsets(offset):
            self._take_name(offset)
            return None
        return write_offsets({}, self._fresh) | {NAME: f"{prefix}-{self._fresh:016x}"}

    def _take_name(self, offset: Mapping[str, str]) -> None:
        """Take the name of the subscription from an offset, if it was made for the query.

        Raises:
            ConfigurationError: the options do not fit the checkpoint.
        """
        name, options = read_name(offset), self.options
        if name and options.subscription not in ("", name):
            raise ConfigurationError(
                f"this checkpoint has the subscription {name}, made with groupIdPrefix; give that option, or"
                f" subscription={name}"
            )
        if options.group_prefix and not name:
            raise ConfigurationError(
                "this checkpoint was made with option subscription; give that one in place of groupIdPrefix"
            )
        self.subscription, self._own_name = name or options.subscription, {NAME: name} if name else {}

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
            later = bool(self.options.pattern and known)
            begin = self.topics.subscribe(topic, "earliest") if later else self._begin(topic)
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
            _log.warning("subscription %s: %s", self.subscription, error)

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
        self._take_name(end)
        plans = {}
        for topic, until in read_offsets(end).items():
            after = begin.get(topic)
            if after != until:
                plans[topic] = after, self._plan(topic, after, until, token=token)
        return parts_of(self.options, plans, self.subscription)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range, partition.subscription)

    def commit(self, end: dict[str, str]) -> None:
        """Acknowledge everything up to this offset."""
        self._take_name(end)
        self._acknowledge(end)

    def _acknowledge(self, offset: Mapping[str, str]) -> None:
        token = read_token(offset)
        upto = {
            topic: position for topic, position in read_offsets(offset).items()
            if self._acknowledged.get(topic) != (offset[topic], token)
        }  # fmt: skip
        if upto:
            self._written.sync()
        for topic, position in upto.items():
            try:
                self._acknowledge_one(topic, position, token)
                self._acknowledged[topic] = offset[topic], token
            except SubscriptionTaken:
                raise
            except PubsubError as error:
                _log.warning("subscription %s: not acknowledged now: %s", self.subscription, error)

    def _acknowledge_one(self, topic: str, position: Position | None, token: int) -> None:
        take_over = self.options.take_over and topic not in self._taken_over
        self.topics.acknowledge(topic, position, token, take_over=take_over)
        # Take over only once, so that of two queries that take over from each other one ends.
        self._taken_over.add(topic)

    def stop(self) -> None:
        """Release the sockets; nothing depends on this call."""
        self.close()
