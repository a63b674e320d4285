"""Ranges of topics as a driver sees them: what there is, how much of it one batch takes, and how tasks share it.

A range is (after, until], by positions; its legs, as the server answers them, say how many records lie between. All
of this is arithmetic on what was answered; `Topics` does the asking.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.requests import Proxies
from pubsub.errors import CallerError, DataLoss, NotSubscribed, PubsubError, Superseded, Unavailable
from pubsub.protocol import Get, Outcome, Position, Read, Report, Status, Subscribe, Unsubscribe
from pubsub.protocol.names import format_position, parse_position

_EPOCH_MS: Final = 1_577_836_800_000


CHECKPOINT: Final = "checkpoint id"
"""Under this name an offset has the token of its checkpoint; no topic's name has a space."""

_log: Final = logging.getLogger("pubsub.spark")


class SubscriptionTaken(PubsubError):
    """The subscription is acknowledged by a query with another checkpoint, so each would miss rows of the other."""

    exit_code = Superseded.exit_code

    def __init__(self, subscription: str, topic: str) -> None:
        self.subscription, self.topic = subscription, topic
        super().__init__(subscription, topic)

    def __str__(self) -> str:
        return (
            f"{self.topic}: subscription {self.subscription} belongs to another query's checkpoint, and rows would be"
            " left out; give each query a subscription of its own, or, where the other is gone, start this one with"
            " option takeOver=true (--take-over of a pipeline)"
        )


class RangeLost(DataLoss):
    """Records of a range cannot be read (any more)."""

    def __str__(self) -> str:
        return f"{self.topic}: records {self.first} to {self.last} cannot be read: {self.reason}"


class RangeChanged(PubsubError):
    """A topic was merged with another server's while a job without a subscription read it."""

    exit_code = Unavailable.exit_code

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(topic)

    def __str__(self) -> str:
        return (
            f"{self.topic}: two servers' parts of it were merged while it was read, and records may be left out or come"
            " twice; run the job again, or name a subscription"
        )


@dataclass(slots=True, frozen=True)
class Range:
    """A part of a topic, for one task.

    Attributes:
        after, until: positions, as text; after "": from where the subscription stands, or what is stored begins.
        records: that lie in it, those left out by a join included.
        legs: without a subscription: (log, first offset, one above the last, what is left out), by which a reader
            sees that a merge has changed it; else none.
    """

    topic: str
    after: str
    until: str
    records: int
    legs: tuple[tuple[str, int, int, int], ...] = ()


@dataclass(slots=True, frozen=True)
class Plan:
    """What a server says of a range.

    Attributes:
        stands: where the subscription stands, or what is stored begins.
        latest: the last position of the range.
        within: the last one up to which it holds at most the bytes asked for.
        legs: (log, first offset, one above the last, bytes).
        lost: whether the range was to begin elsewhere, where nothing is (any more); it begins where it `stands`.
        left_out: without a subscription: of each leg, what is left out of it, as a number.
    """

    stands: Position | None
    latest: Position | None
    within: Position | None
    legs: tuple[tuple[str, int, int, int], ...]
    lost: bool = False
    left_out: tuple[int, ...] = ()

    @property
    def records(self) -> int:
        """How many records lie in the range."""
        return sum(stop - low for _, low, stop, _ in self.legs)

    @property
    def bytes(self) -> int:
        """How many bytes."""
        return sum(leg[3] for leg in self.legs)

    def at(self, count: int) -> Position | None:
        """The position of the record that is `count`-th in the range, from 1; the last one's beyond that."""
        for log, low, stop, _ in self.legs:
            if count <= stop - low:
                return log, low + count - 1
            count -= stop - low
        return self.latest

    def between(self, low: int, high: int) -> tuple[tuple[str, int, int, int], ...]:
        """The legs of records `low` + 1 to `high`, with what is left out; none where that is not known."""
        out = []
        for (log, first, stop, _), left in zip(self.legs, self.left_out, strict=False):
            begin, end = max(low, 0), min(high, stop - first)
            if begin < end:
                out.append((log, first + begin, first + end, left))
            low, high = low - (stop - first), high - (stop - first)
        return tuple(out)

    def records_until(self, position: Position | None) -> int:
        """How many records of the range lie up to and with a position of it."""
        total = 0
        for log, low, stop, _ in self.legs:
            if position is not None and log == position[0] and low <= position[1] < stop:
                return total + position[1] - low + 1
            total += stop - low
        return total


def shares(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """How much of a limit each topic gets: in proportion to what it has, and all of it where that is less.

    None that has something is left out for ever: what is left by rounding goes one by one, to the largest first.
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
    """A range in parts of at most so many records, as equal as can be."""
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
    """What a driver asks of topics.

    Args:
        link: to the proxies; its client is who asks, but what counts is the name of the subscription.
        subscription: name of the durable subscription; "": none, ranges are of what is stored.
        fail_on_data_loss: whether a range that is not there any more is an error.
    """

    def __init__(self, link: Proxies, subscription: str, *, fail_on_data_loss: bool = True) -> None:
        self._link, self._subscription = link, subscription
        self._client, self._fails = link.asker.client, fail_on_data_loss

    def listed(self) -> list[str]:
        """Every topic of the cluster.

        Raises:
            Unavailable: no proxy answers.
            CallerError: there are more than a report lists.
        """
        report = json.loads(bytes(self._link.ask(Report(self._client, "-")).body))
        names = [row["topic"] for row in report["topics"]]
        if report["topics_total"] > len(names):
            raise CallerError(f"the cluster has {report['topics_total']:,} topics, more than can be matched; name them")
        return sorted(names)

    def subscribe(self, topic: str, start: str) -> Position | None:
        """Make the subscription where it is not there yet; where it stands.

        Args:
            start: "earliest" or "latest", for one that is made now.

        Raises:
            Unavailable: see `Proxies.ask`.
            Superseded: it was ended under a number of the future.
        """
        number = _number()
        for _ in range(2):
            request = Subscribe(self._client, topic, number, number, name=self._subscription, start=start)
            status = self._link.ask(request)
            if status.outcome is Outcome.SUCCESS:
                return status.position
            # The subscription was ended once: whoever subscribes anew needs a higher number.
            number = min(status.number + 1, NUMBER_MAX)
        raise Superseded(self._subscription, topic)

    def unsubscribe(self, topic: str) -> None:
        """End the subscription: what only it still held may go."""
        number = _number()
        for _ in range(2):
            status = self._link.ask(Unsubscribe(self._client, topic, number, number, name=self._subscription))
            if status.outcome is Outcome.SUCCESS:
                return
            number = min(status.number + 1, NUMBER_MAX)

    def plan(self, topic: str, after: Position | None, until: Position | None = None, bytes_max: int = 0) -> Plan:
        """What lies in a range; where its start is not there any more and that is no error, from the first that is.

        Raises:
            RangeLost: it is not there, or not any more.
            Unavailable: see `Proxies.ask`.
        """
        request = Read(self._client, topic, after, until, name=self._subscription, bytes_max=bytes_max)
        status, lost = self._link.ask(request), False
        if status.outcome is Outcome.BEHIND and not self._fails:
            _log.warning("%s; going on with what is there", gone(topic, after, until, status))
            lost, status = True, self._link.ask(replace(request, after=None))
            if status.outcome is Outcome.BEHIND:  # The range's end is not there either.
                return Plan(status.position, status.position, status.position, (), lost)
        if status.outcome is not Outcome.SUCCESS:
            raise gone(topic, after, until, status)
        return read_plan(status, lost=lost)

    def acknowledge(self, topic: str, last: Position | None, token: int = 0, *, take_over: bool = False) -> None:
        """What is up to a position is not needed any more; None: nothing new is.

        Args:
            token: of the checkpoint that says so, which the subscription belongs to from now on; 0: of none yet.
            take_over: whether that counts although the subscription belongs to another one.

        Raises:
            SubscriptionTaken: it belongs to another one.
            RangeLost: the subscription stands elsewhere.
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
    """The plan that a server answers."""
    facts = json.loads(bytes(status.body))
    legs = tuple((log, low, stop, size) for log, low, stop, size in facts["legs"])
    latest, within = parse_position(facts["latest"]), parse_position(facts["within"])
    return Plan(status.position, latest, within, legs, lost, tuple(facts.get("left_out", ())))


def gone(
    topic: str,
    after: Position | None,
    until: Position | None,
    status: Status,
    name: str = "",
    *,
    merged: bool = False,
) -> RangeLost:
    """A range that is not there (any more), as an error.

    Args:
        name: of the subscription, where it is not known that no other query has it.
        merged: whether a merge may have taken it away, or is about to bring it.
    """
    stands = f"; what is there begins behind {format_position(status.position)}" if status.position else ""
    other = f", perhaps by another query that has subscription {name} too" if name else ""
    merge = ", or two servers' parts of it were merged while it was read: run the job again" if merged else ""
    reason = f"they are not in the topic, or acknowledged and deleted{other}{merge}{stands} ({status.outcome})"
    return RangeLost(topic, format_position(after), format_position(until), reason)


def _number() -> int:
    """A number above those of earlier requests, as a client's allocator would give; 1 where the clock gives none."""
    number = (int(time.time() * 1000) - _EPOCH_MS) << 22
    return number if 0 < number <= NUMBER_MAX else 1


def read_offsets(offset: Mapping[str, str]) -> dict[str, Position | None]:
    """Positions by topic, from an offset of Spark's."""
    return {topic: parse_position(text) for topic, text in offset.items() if topic != CHECKPOINT}


def read_token(offset: Mapping[str, str]) -> int:
    """The token of the checkpoint that an offset is in; 0: it has none, as the first start and those of old."""
    return int(offset.get(CHECKPOINT, "0"), 16)


def write_offsets(positions: Mapping[str, Position | None], token: int = 0) -> dict[str, str]:
    """An offset for Spark, which compares its text: always in the order of the topics' names, the token behind them."""
    texts = {topic: format_position(positions[topic]) for topic in sorted(positions)}
    return texts | ({CHECKPOINT: f"{token:016x}"} if token else {})


def names(topics: Sequence[str]) -> str:
    """Topics for a person, not too many."""
    shown = ", ".join(topics[:5])
    return shown if len(topics) <= 5 else f"{shown} and {len(topics) - 5} more"
