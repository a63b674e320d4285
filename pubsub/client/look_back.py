"""Read stored messages of a topic without a subscription (docs/how-to/look-back.md).

A range is read in pages: each request names the place at which the last page ended, and the history in which that place
lies. A merge may put other messages in front of that place. The server then answers *again*, and the read ends by
`HistoryChanged`, since messages might be missing or come twice otherwise. Only one page is in memory at a time.

The rules are docs/explanation/looking-back.md, Z5 and Z6.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zlib import crc32

from pubsub.base.clock import MICROSECONDS
from pubsub.client.core.expired import separated
from pubsub.client.core.message import Batch, RunSlice
from pubsub.client.core.rights import oldest_of
from pubsub.client.errors import HistoryChanged, RangeLoss, StartGone
from pubsub.client.requests import NO_TOPIC, Proxies
from pubsub.errors import DecodeError, NotKnown, Refused, Unavailable
from pubsub.protocol import Outcome, Position, Read, Records, Status, check_topic, format_position
from pubsub.protocol.names import EARLIEST, FEWER, LATEST, Start, parse_number, parse_position

PAGE_RECORDS: Final = 10_000
"""Most messages of a page."""

PAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a page; one batch is sent even if it is larger."""

UPGRADE: Final = "all servers need a release that reads from a start: upgrade them first"

_log: Final = logging.getLogger("pubsub.client")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OF_EARLIER_RELEASES: Final = ("from", "times", "before", "history")
"""Fields that a server of an earlier release refuses by name."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place between two pages.

    Attributes:
        after: position of the last message that was read; None: none was.
        history: the server's name for the order of messages in which that position lies.
        since: messages with stamps up to this are left out; 0: none are.
    """

    after: Position | None = None
    history: str = ""
    since: int = 0

    def __str__(self) -> str:
        return f"{format_position(self.after)}~{self.history}~{self.since}"


def parse_place(text: str) -> Place:
    """Return the place that `str` wrote.

    Raises:
        ValueError: the text is no place.
    """
    after, history, since = text.split("~")
    place = Place(parse_position(after), history, parse_number(since))
    if place.after is None or (history and (len(history) != 16 or not set(history) <= set("0123456789abcdef"))):
        raise ValueError(f"not a place: {text[:60]!r}")
    return place


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a range.

    Attributes:
        batch: its messages.
        place: its end.
        ended: True if the range has no more messages now.
    """

    batch: Batch
    place: Place
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TopicTimes:
    """The stored messages of a topic: where they begin and end, and how many there are.

    Attributes:
        topic: its name.
        oldest, newest: times at which a server accepted the first and the last of them; None: there is none.
        records, bytes: their number, and the bytes of their batches.
        exact: False if `records` and `bytes` are upper bounds.
        first: position of the first of them; None: there is none.
        end: position that follows the last of them.
    """

    topic: str
    oldest: datetime | None
    newest: datetime | None
    records: int
    bytes: int
    exact: bool
    first: Position | None
    end: Position | None


class RangeReader:
    """Reads a range of a topic page by page.

    Args:
        proxies: connections to the proxies.
        sender: the client ID.
        topic: the topic.
        start: the start of the range.
        stop: its end: a timestamp, which is not in the range any more; a position, which is its last one; or `latest`.
        place: continue at this place; None: begin.
        wall: the client's clock, seconds since 1970, for messages with a time to live.
    """

    def __init__(
        self,
        proxies: Proxies,
        sender: str,
        topic: str,
        start: Start,
        stop: Start,
        place: Place | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        proxies.tells_absent = True
        self._proxies, self._topic, self._wall = proxies, topic, wall
        self._request = Read(sender, topic, None, start=0 if start == EARLIEST else start)
        if isinstance(stop, int):
            self._request.before = stop
        elif isinstance(stop, tuple):
            self._request.until = stop
        self.place = place or Place()

    def page(self, records_max: int = PAGE_RECORDS, bytes_max: int = PAGE_BYTES) -> Page:
        """Return the next page; an empty one may be followed by others until one has `ended`.

        Raises:
            StartGone: no server holds the message at the start, or at the present place any more.
            HistoryChanged: a merge put other messages in front of the present place.
            RangeLoss: messages are lost; the next call continues behind them.
            NotKnown: no server holds the topic.
            Refused, NotAllowed, KeyRefused, Unavailable: see `Proxies.ask`.
        """
        place = self.place
        request = replace(self._request, records_max=records_max, bytes_max=bytes_max)
        if place.after is not None:
            request.after, request.history = place.after, place.history
            request.start = place.since + 1 if place.since else EARLIEST
        status = ask(self._proxies, request)
        outcome = status.outcome
        if outcome is Outcome.EMPTY:
            return Page(Batch(self._topic), self.place, ended=True)
        if outcome is Outcome.AGAIN:
            raise HistoryChanged(self._topic, "" if place.after is None else format_position(place.after))
        if outcome not in {Outcome.SUCCESS, Outcome.LOST} or status.message is None:
            raise StartGone(self._topic, oldest_of(status))
        self.place = Place(status.message, status.history, status.since)
        if status.reason == FEWER:
            _log.warning("%s: fewer messages than %s were found; begin at a time instead", self._topic, request.start)
        if outcome is Outcome.LOST:
            first = format_position(status.first or status.message)
            reason = status.reason.replace("_", " ") or "no server can hand them out"
            raise RangeLoss(self._topic, first, format_position(status.message), reason)
        return Page(_batch(self._topic, status, self._wall()), self.place)


def _batch(topic: str, status: Status, wall: float) -> Batch:
    """Return the messages of an answer without those with a time to live that has ended at `wall`."""
    body = bytes(status.body)
    if not status.records:
        return Batch(topic)
    try:
        if crc32(body) != status.checksum:
            raise DecodeError("the checksum of the records differs")
        records = Records(body)
    except DecodeError as error:
        raise Unavailable("read", topic, 0, str(error)) from None
    pieces = [RunSlice(run, records.data, 0, len(run.ends)) for run in records.runs]
    return Batch(topic, separated(pieces, int(wall * MICROSECONDS))[0])


def ask(proxies: Proxies, request: Read) -> Status:
    """Send a request that reads, and return its answer.

    Raises:
        NotKnown: no server holds the topic.
        PubsubError: see `Proxies.ask`.
    """
    try:
        status = proxies.ask(request)
    except Refused as error:
        if any(f"!{word}" in error.reason for word in _OF_EARLIER_RELEASES):
            raise Refused("read", request.topic, f"{error.reason}; {UPGRADE}") from None
        raise
    if status.outcome is Outcome.UNKNOWN and status.reason == NO_TOPIC:
        raise NotKnown(f"topic {request.topic}: no server holds it; pubsub status lists the topics")
    return status


def read_times(proxies: Proxies, sender: str, topic: str) -> TopicTimes:
    """Return the times of a topic.

    Raises:
        NotKnown: no server holds the topic.
        PubsubError: see `Proxies.ask`.
    """
    check_topic(topic)
    proxies.tells_absent = True
    status = ask(proxies, Read(sender, topic, None, start=0, times=1))
    try:
        facts: Any = json.loads(bytes(status.body))
        return TopicTimes(
            topic,
            _moment(facts["oldest"]),
            _moment(facts["newest"]),
            int(facts["records"]),
            int(facts["bytes"]),
            bool(facts["exact"]),
            None if facts["oldest"] is None else _place(facts["first"]),
            _place(facts["end"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        reason = status.reason.replace("_", " ") or "the answer has no times"
        raise Refused("times", topic, f"{reason}; {UPGRADE}") from None


def _moment(stamp: int | None) -> datetime | None:
    return None if stamp is None else _EPOCH + timedelta(microseconds=stamp)


def _place(text: str | None) -> Position | None:
    return None if text is None else parse_position(text)


__all__ = ["LATEST", "Page", "Place", "RangeReader", "TopicTimes", "parse_place", "read_times"]
