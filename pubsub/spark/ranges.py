"""Ranges of topics on the driver: their content, their share of a batch, and their split into tasks.

A range is (after, until], by positions. Its legs, from the server's answer, give the number of records. Everything
here computes from answers; `Topics` sends the requests.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.requests import NO_TOPIC, Proxies
from pubsub.errors import CallerError, DataLoss, NotKnown, NotSubscribed, PubsubError, Superseded, Unavailable
from pubsub.protocol import Get, Outcome, Position, Read, Report, Status, Subscribe, Unsubscribe
from pubsub.protocol.names import Start, format_position, parse_position

_EPOCH_MS: Final = 1_577_836_800_000


CHECKPOINT: Final = "checkpoint id"
"""Name under which an offset has its checkpoint's token; no topic's name contains a space."""

NAME: Final = "subscription name"
"""Name under which an offset has the subscription that was made for the query; see option groupIdPrefix."""

_log: Final = logging.getLogger("pubsub.spark")


class SubscriptionTaken(PubsubError):
    """A query with another checkpoint acknowledges the subscription, so each query would miss rows of the other."""

    exit_code = Superseded.exit_code

    def __init__(self, subscription: str, topic: str) -> None:
        self.subscription, self.topic = subscription, topic
        super().__init__(subscription, topic)

    def __str__(self) -> str:
        return (
            f"{self.topic}: subscription {self.subscription} belongs to another query's checkpoint, and rows would be"
            " left out; give each query its own subscription. If the other query is gone, start this one with"
            " option takeOver=true (--take-over of a pipeline)"
        )


class RangeLost(DataLoss):
    """Records of a range cannot be read, or not any more."""

    def __str__(self) -> str:
        return f"{self.topic}: records {self.first} to {self.last} cannot be read: {self.reason}"


class RangeChanged(PubsubError):
    """A topic was merged with another server's part while a job without a subscription read it."""

    exit_code = Unavailable.exit_code

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    def __str__(self) -> str:
        return (
            f"{self.topic}: two servers' parts of it were merged while it was read, and records may be missing or come"
            " twice; run the job again, or give a subscription"
        )


@dataclass(slots=True, frozen=True)
class Range:
    """A part of a topic, for one task.

    Attributes:
        after, until: positions as text. after "" begins at the subscription's position, or at the oldest stored
            record.
        records: number of records in it, including those that a join leaves out.
        legs: without a subscription, (log, first offset, last offset + 1, left-out records); a reader detects a merge
            by them. Otherwise empty.
    """

    topic: str
    after: str
    until: str
    records: int
    legs: tuple[tuple[str, int, int, int], ...] = ()


@dataclass(slots=True, frozen=True)
class Plan:
    """A server's description of a range.

    Attributes:
        stands: the subscription's position, or the position before the oldest stored record.
        latest: the last position of the range.
        within: the last position up to which it has at most the requested bytes.
        legs: (log, first offset, last offset + 1, bytes).
        lost: the requested begin does not exist, or not any more; the range begins at `stands`.
        left_out: without a subscription, the left-out records of each leg, as a number.
    """

    stands: Position | None
    latest: Position | None
    within: Position | None
    legs: tuple[tuple[str, int, int, int], ...]
    lost: bool = False
    left_out: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """Number of records in the range."""
        return sum(stop - low for _, low, stop, _ in self.legs)

    @property
    def bytes(self) -> int:
        """Number of bytes in the range."""
        return sum(leg[3] for leg in self.legs)

    def at(self, count: int) -> Position | None:
        """Return the position of the record number `count`, from 1; the last position if there are fewer."""
        for log, low, stop, _ in self.legs:
            if count <= stop - low:
                return log, low + count - 1
            count -= stop - low
        return self.latest

    def between(self, low: int, high: int) -> tuple[tuple[str, int, int, int], ...]:
        """Return the legs of records `low` + 1 to `high` with the left-out records; empty if these are not known."""
        out = []
        for (log, first, stop, _), left in zip(self.legs, self.left_out, strict=False):
            begin, end = max(low, 0), min(high, stop - first)
            if begin < end:
                out.append((log, first + begin, first + end, left))
            low, high = low - (stop - first), high - (stop - first)
        return tuple(out)

    def records_after(self, position: Position | None) -> int:
        """Return the number of records after a position; all of them if it is before the range."""
        known = any(
            position is not None and position[0] == log and low <= position[1] < stop for log, low, stop, _ in self.legs
        )
        return self.records - self.records_until(position) if known else self.records

    def records_until(self, position: Position | None) -> int:
        """Return the number of records up to and including a position."""
        total = 0
        for log, low, stop, _ in self.legs:
            if position is not None and log == position[0] and low <= position[1] < stop:
                return total + position[1] - low + 1
            total += stop - low
        return total


def shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among topics in proportion to their amounts; a topic never gets more than it has.

    No topic with records is left out permanently: the remainder of rounding goes out one by one, to the largest first.
    """
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    out = {topic: limit * count // total for topic, count in wanted.items()}
    left = limit - sum(out.values())
    for topic in sorted(wanted, key=lambda topic: (out[topic] > 0, -wanted[topic], topic)):
        if left and out[topic] < wanted[topic]:
            out[topic] += 1
            left -= 1
    return out


def cut(topic: str, after: Position | None, plan: Plan, records_max: int) -> list[Range]:
    """Cut a range into parts of at most `records_max` records, as equal as possible."""
    total = plan.records
    if not total:
        return []
    parts = -(-total // records_max)
    out, begin, done = [], "" if after is None else format_position(after), 0
    for part in range(1, parts + 1):
        upto = total * part // parts
        end = format_position(plan.at(upto))
        out.append(Range(topic, begin, end, upto - done, plan.between(done, upto)))
        begin, done = end, upto
    return out


class Topics:
    """The driver's requests about topics.

    Args:
        link: connections to the proxies.
        subscription: name of the durable subscription, which counts instead of the client ID; "" for stored messages
            without a subscription.
        fail_on_data_loss: raise an error if a range does not exist any more.
    """

    def __init__(self, link: Proxies, subscription: str, *, fail_on_data_loss: bool = True) -> None:
        self._link, self._subscription = link, subscription
        self._client, self._fails = link.asker.client, fail_on_data_loss

    def listed(self) -> list[str]:
        """Return every topic of the cluster.

        Raises:
            Unavailable: no proxy answers.
            CallerError: there are more topics than a report lists.
        """
        report = json.loads(bytes(self._link.ask(Report(self._client, "-")).body))
        names = [row["topic"] for row in report["topics"]]
        if report["topics_total"] > len(names):
            raise CallerError(
                f"the cluster has {report['topics_total']:,} topics, too many for a pattern; list the topics"
            )
        return sorted(names)

    def subscribe(self, topic: str, start: Start) -> Position | None:
        """Make the subscription if it does not exist; return its position.

        Args:
            start: "earliest", "latest" or a timestamp in microseconds, for a new subscription.

        Raises:
            Refused: the timestamp lies in the future, or the server is of an earlier release.
            Unavailable: see `Proxies.ask`.
            Superseded: it was ended under a number in the future.
        """
        number = _number()
        for _ in range(2):
            request = Subscribe(self._client, topic, number, number, name=self._subscription, start=start)
            status = self._link.ask(request)
            if status.outcome is Outcome.SUCCESS:
                return status.position
            # The subscription was ended before, so a new one needs a higher number.
            number = min(status.number + 1, NUMBER_MAX)
        raise Superseded(self._subscription, topic)

    def unsubscribe(self, topic: str) -> None:
        """End the subscription; the server may delete messages that only it held."""
        number = _number()
        for _ in range(2):
            status = self._link.ask(Unsubscribe(self._client, topic, number, number, name=self._subscription))
            if status.outcome is Outcome.SUCCESS:
                return
            number = min(status.number + 1, NUMBER_MAX)

    def plan(self, topic: str, after: Position | None, until: Position | None = None, bytes_max: int = 0) -> Plan:
        """Return the plan of a range. If its begin is gone and that is not an error, the plan begins at the first
        existing record.

        Raises:
            RangeLost: the range does not exist, or not any more.
            NotKnown: no server holds the topic, and the connection tells so.
            Unavailable: see `Proxies.ask`.
        """
        request = Read(self._client, topic, after, until, name=self._subscription, bytes_max=bytes_max)
        status, lost = self._link.ask(request), False
        if status.outcome is Outcome.BEHIND and not self._fails:
            _log.warning("%s; continuing with the remaining records", gone(topic, after, until, status))
            lost, status = True, self._link.ask(replace(request, after=None))
            if status.outcome is Outcome.BEHIND:  # The range's end does not exist either.
                return Plan(status.position, status.position, status.position, (), lost)
        check_known(topic, status)
        if status.outcome is not Outcome.SUCCESS:
            raise gone(topic, after, until, status)
        return read_plan(status, lost=lost)

    def before(self, topic: str, stamp: int) -> Position | None:
        """Return the position before the first stored record with this timestamp or a later one.

        Args:
            stamp: in microseconds since 1970.

        Raises:
            RangeLost, Refused, Unavailable: see `Proxies.ask`.
        """
        return self._planned(Read(self._client, topic, None, start=stamp)).stands

    def last_before(self, topic: str, stamp: int) -> Position | None:
        """Return the position of the last stored record with an earlier timestamp, or the one before all records.

        Args:
            stamp: in microseconds since 1970.

        Raises:
            RangeLost, Refused, Unavailable: see `Proxies.ask`.
        """
        return self._planned(Read(self._client, topic, None, before=stamp)).latest

    def _planned(self, request: Read) -> Plan:
        status = self._link.ask(request)
        if status.outcome is not Outcome.SUCCESS:
            raise gone(request.topic, None, None, status)
        return read_plan(status)

    def acknowledge(self, topic: str, last: Position | None, token: int = 0, *, take_over: bool = False) -> None:
        """Acknowledge all records up to a position; None acknowledges nothing new.

        Args:
            token: token of the acknowledging checkpoint, which owns the subscription from now on; 0 for none yet.
            take_over: acknowledge even if the subscription belongs to another checkpoint.

        Raises:
            SubscriptionTaken: it belongs to another checkpoint.
            RangeLost: the subscription is at another position.
            Unavailable: see `Proxies.ask`.
        """
        request = Get(self._client, topic, last, int(take_over), token, records_max=0, name=self._subscription)
        status = self._link.ask(request)
        if status.outcome is Outcome.SUPERSEDED:
            raise SubscriptionTaken(self._subscription, topic)
        if status.outcome is Outcome.BEHIND:
            raise gone(topic, last, last, status)
        if status.outcome is not Outcome.EMPTY:
            raise NotSubscribed(self._subscription, topic)


def read_plan(status: Status, *, lost: bool = False) -> Plan:
    facts = json.loads(bytes(status.body))
    legs = tuple((log, low, stop, size) for log, low, stop, size in facts["legs"])
    latest, within = parse_position(facts["latest"]), parse_position(facts["within"])
    return Plan(status.position, latest, within, legs, lost, tuple(facts.get("left_out", ())))


def check_known(topic: str, status: Status) -> None:
    """Check the answer of a connection that tells of absent topics.

    Raises:
        NotKnown: no server holds the topic.
    """
    if status.outcome is Outcome.UNKNOWN and status.reason == NO_TOPIC:
        raise NotKnown(f"topic {topic}: no server holds it; pubsub topic list shows the topics")


def gone(
    topic: str,
    after: Position | None,
    until: Position | None,
    status: Status,
    name: str = "",
    *,
    merged: bool = False,
) -> RangeLost:
    """Return the error for a range that does not exist, or not any more.

    Args:
        name: the subscription, if another query may use it too.
        merged: a merge may have removed the range, or may bring it soon.
    """
    stands = f"; the remaining records begin after {format_position(status.position)}" if status.position else ""
    other = f", perhaps by another query with subscription {name}" if name else ""
    merge = ", or two servers' parts of it were merged while it was read: run the job again" if merged else ""
    reason = f"they are not in the topic, or acknowledged and deleted{other}{merge}{stands} ({status.outcome})"
    return RangeLost(topic, format_position(after), format_position(until), reason)


def _number() -> int:
    """Return a number above those of earlier requests, like a client's allocator; 1 if the clock is unusable."""
    number = (int(time.time() * 1000) - _EPOCH_MS) << 22
    return number if 0 < number <= NUMBER_MAX else 1


def read_offsets(offset: Mapping[str, str]) -> dict[str, Position | None]:
    """Return the positions by topic in an offset of Spark's."""
    return {topic: parse_position(text) for topic, text in offset.items() if topic not in (CHECKPOINT, NAME)}


def read_token(offset: Mapping[str, str]) -> int:
    """Return the token of an offset's checkpoint; 0 for a first start or an offset of an early release."""
    return int(offset.get(CHECKPOINT, "0"), 16)


def read_name(offset: Mapping[str, str]) -> str:
    """Return the subscription that was made for an offset's query; "" for none."""
    return offset.get(NAME, "")


def write_offsets(positions: Mapping[str, Position | None], token: int = 0) -> dict[str, str]:
    """Return an offset for Spark. Spark compares its text, so topics are sorted by name and the token is last."""
    texts = {topic: format_position(positions[topic]) for topic in sorted(positions)}
    return texts | ({CHECKPOINT: f"{token:016x}"} if token else {})


def names(topics: Sequence[str]) -> str:
    """Return a short list of topics for a message."""
    shown = ", ".join(topics[:5])
    return shown if len(topics) <= 5 else f"{shown} and {len(topics) - 5} more"
