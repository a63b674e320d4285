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
from pubsub.protocol.names import format_position, parse_position
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
        RangeChanged: a merge has changed it.
        Unavailable: nobody answered within the time-out.
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
                _log.warning("%s; going on with what is there", lost)
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
                    "the server cannot hand them out any more; option failOnDataLoss=false goes on without them",
                )
                if options.fail_on_data_loss:
                    raise lost
                _log.warning("%s", lost)
            if status.message == until:
                break
        if part.legs:
            check_unchanged(link, part)


def check_unchanged(link: Proxies, part: Range) -> None:
    """See that a range still is what was planned, now that it has been read.

    Raises:
        RangeChanged: it is not.
        Unavailable: see `Proxies.ask`.
    """
    after, until = parse_position(part.after) if part.after else None, parse_position(part.until)
    status = link.ask(Read(link.asker.client, part.topic, after, until))
    if status.outcome is Outcome.BEHIND and is_before(after, status.position):
        return  # What has been read went meanwhile, by age or for want of room.
    if status.outcome is not Outcome.SUCCESS or read_plan(status).between(0, part.records) != part.legs:
        raise RangeChanged(part.topic)


def is_before(position: Position | None, other: Position | None) -> bool:
    """Whether a position is before another one of the same log, as trimming leaves them."""
    return position is not None and other is not None and position[0] == other[0] and position[1] < other[1]


def parts_of(options: SourceOptions, plans: Mapping[str, tuple[Position | None, Plan]]) -> list[Part]:
    """Ranges cut for tasks: as many as asked for, none too small and none too large."""
    total = sum(plan.records for _, plan in plans.values())
    wanted = options.partitions_min or os.cpu_count() or 1
    size = min(PART_RECORDS_MAX, max(-(-total // wanted), 1 if options.partitions_min else PART_RECORDS_MIN))
    begins = {topic: plan.stands if plan.lost else after for topic, (after, plan) in plans.items()}
    return [Part(part) for topic in sorted(plans) for part in cut(topic, begins[topic], plans[topic][1], size)]


class _Asking:
    """What both readers share: a link that is made when it is first needed and does not travel."""

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
        """Where the key file holds another key by now, go on with that one."""
        if self._link is not None and self._link.asker.pair != self.options.identity.pair():
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
        self._acknowledged: dict[str, tuple[str, int]] = {}
        self._taken_over: set[str] = set()
        self._fresh = random.SystemRandom().randrange(1, NUMBER_MAX)
        """The token of a checkpoint that has none yet."""
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
        plan = self._plan(topic, position)  # It raises where the server knows no such position.
        return plan.stands if plan.lost else position

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
        """How far the next batch goes; acknowledges where it begins, which is in the checkpoint.

        Raises:
            SubscriptionTaken: another checkpoint acknowledges it.
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
        # A start that is not in the checkpoint yet has no token: this end is the first that is.
        return write_offsets(ends, token or (self._fresh if ends != known else 0))

    def _is_read(self, topic: str) -> bool:
        """Whether a topic that was read up to now still is; what it had is acknowledged once more, and then no more."""
        options = self.options
        return topic in options.subscribe or bool(options.pattern and re.fullmatch(options.pattern, topic))

    def _come(self, known: Mapping[str, Position | None], token: int) -> list[str]:
        """Topics that are to be read and were not so far. What the pattern matches only now is read from its
        beginning: none of it was seen yet. A position that is named is acknowledged: the batch's start does not have
        the topic, so its first range begins where the subscription stands."""
        come = [topic for topic in self._target or self.named() if topic not in known]
        for topic in come:
            begin = self.topics.subscribe(topic, "earliest") if self.options.pattern else self._begin(topic)
            self._acknowledge_one(topic, begin, token)
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

    def _next(self, topic: str, after: Position | None, bytes_max: int, token: int) -> Plan:
        return self._plan(topic, after, (self._target or {}).get(topic), bytes_max, token)

    def _plan(
        self, topic: str, after: Position | None, until: Position | None = None, bytes_max: int = 0, token: int = 0
    ) -> Plan:
        """What lies in a range.

        Raises:
            SubscriptionTaken: it is not there, and another checkpoint has acknowledged it.
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
        """See that no other query has acknowledged what is not there.

        Raises:
            SubscriptionTaken: one has.
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
        """The ranges of a batch; for the same offsets the same records, however often it is asked."""
        begin, token = read_offsets(start), read_token(end)
        plans = {}
        for topic, until in read_offsets(end).items():
            after = begin.get(topic)
            if after != until:
                plans[topic] = after, self._plan(topic, after, until, token=token)
        return parts_of(self.options, plans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range)

    def commit(self, end: dict[str, str]) -> None:
        """What is up to here is not needed any more."""
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
        self._taken_over.add(topic)  # Once: where two queries take over from each other, one of them is to end.

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
        plan = whole = self.topics.plan(topic, None)
        if (starting, ending) != ("earliest", "latest"):
            # An edge that the request need not name is the one of the very answer, whatever was merged in between.
            after = whole.latest if starting == "latest" else parse_position_of(starting)
            until = whole.stands if ending == "earliest" else parse_position_of(ending)
            if starting == ending == "latest":
                until = after
            plan = self.topics.plan(topic, after, until)
            if after is not None:
                return after, plan
        return plan.stands, plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, on an executor."""
        assert isinstance(partition, Part)
        return read_part(self.options, partition.range)


def parse_position_of(text: str) -> Position | None:
    """A position of an option; None for an edge of a topic that holds nothing."""
    return None if text in {"earliest", "latest"} else parse_position(text)
