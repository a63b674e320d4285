"""The view of a topic as a table: the last message of each key, read along the history without a subscription.

A view names the history that it has read, and the number of deletions that had been removed. If it may miss a deletion,
or a merge put other messages in front of its place, the answer is *again*. It then reads from the begin into a new map,
and shows the old one until the new one is complete.

The rules are docs/explanation/compaction.md, KL7 and KL9.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from pubsub.errors import DecodeError, Refused, TooLarge, Unavailable
from pubsub.protocol import Outcome, Position, Read, Records, Status

PAGE_RECORDS: Final = 10_000
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Limits of one page."""

TABLE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a table: its keys and values, and `ENTRY_BYTES` for each key. A new map beside the old one takes the same
again."""

ENTRY_BYTES: Final = 150

UPGRADE: Final = "all servers need a release with tables: upgrade them first"

_OF_THIS_RELEASE: Final = ("!from", "!history", "!tombstones")
_AGAIN: Final = {Outcome.AGAIN, Outcome.BEHIND, Outcome.GONE}


class View:
    """The view of one topic; it neither sends nor waits.

    Args:
        sender: the client ID.
        topic: its name.
        bytes_max: limit of the bytes of one map.

    Attributes:
        values: the value of each key, as of the last complete look.
        lost: number of reports of lost messages.
        begun: number of times that it has begun anew.
    """

    def __init__(self, sender: str, topic: str, bytes_max: int = TABLE_BYTES_MAX) -> None:
        self._sender, self.topic, self._bytes_max = sender, topic, bytes_max
        self.values: dict[bytes, bytes] = {}
        self.lost = 0
        self.begun = -1
        self._begin()

    def _begin(self) -> None:
        self.begun += 1
        self._building: dict[bytes, bytes] = {}
        self._size = 0
        self._after: Position | None = None
        self._history, self._tombstones = "", 0

    def request(self) -> Read:
        """Return the request for the next page."""
        read = Read(self._sender, self.topic, self._after, records_max=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        if self._after is None:
            read.start = 0  # An earlier release refuses it, and would not say `again`.
        read.history, read.tombstones = self._history, self._tombstones
        return read

    def receive(self, status: Status) -> bool:
        """Process an answer; return True if there may be another page now.

        Raises:
            TooLarge: the table has more bytes than its limit.
            Refused: the server does not answer such a request.
            Unavailable: the answer cannot be read.
        """
        if status.outcome in _AGAIN:
            self._begin()
            return True
        if status.outcome not in {Outcome.SUCCESS, Outcome.LOST, Outcome.EMPTY} or status.message is None:
            raise Refused("table", self.topic, status.reason.replace("_", " ") or str(status.outcome))
        more = status.message != self._after
        if status.records:
            self._add(status)
        self.lost += status.outcome is Outcome.LOST
        self._after, self._history, self._tombstones = status.message, status.history, status.number + 1
        if not more:
            self.values = self._building
        return more

    def _add(self, status: Status) -> None:
        body = bytes(status.body)
        try:
            if crc32(body) != status.checksum:
                raise DecodeError("the checksum of the records differs")
            records = Records(body)
        except DecodeError as error:
            raise Unavailable("table", self.topic, 0, str(error)) from None
        keys = (key for run in records.runs for key in run.keys or [b""] * len(run.ends))
        for key, value in zip(keys, records.bodies(), strict=True):
            if not key:
                continue
            old = self._building.pop(key, None)
            self._size -= 0 if old is None else _entry(key, old)
            if value:
                self._building[key] = value
                self._size += _entry(key, value)
        if self._size > self._bytes_max:
            raise TooLarge(f"table of {self.topic}", self._size, self._bytes_max, "TABLE_BYTES_MAX")


def _entry(key: bytes, value: bytes) -> int:
    return len(key) + len(value) + ENTRY_BYTES


def explained(error: Refused) -> Refused:
    """Return the refusal of a server of an earlier release with what to do."""
    if any(word in error.reason for word in _OF_THIS_RELEASE):
        return Refused("table", error.topic, f"{error.reason}; {UPGRADE}")
    return error
