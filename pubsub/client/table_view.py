"""The view of a topic as a table: the last message of each key, read along the history without a subscription.

A view names the history that it has read, and the number of deletions that had been removed. If it may miss a deletion,
or a merge put other messages in front of its place, the answer is *again*. It then reads from the begin into a new map,
and shows the old one until the new one is complete.

A message with a time to live that has ended is not in the table, and no earlier message of its key takes its place.

The rules are docs/explanation/compaction.md, KL7, KL9 and KL10.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

from pubsub.base.due_times import DueTimes
from pubsub.errors import DecodeError, Refused, TooLarge, Unavailable
from pubsub.protocol import Outcome, Position, Read, Records, Status
from pubsub.protocol.time_to_live import ends_at

PAGE_RECORDS: Final = 10_000
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Limits of one page."""

TABLE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a table: its keys and values, and `ENTRY_BYTES` for each key. A new map beside the old one takes the same
again."""

ENTRY_BYTES: Final = 250
ENDS_BYTES: Final = 130
"""What an entry with a time to live takes more."""

UPGRADE: Final = "all servers need a release with tables: upgrade them first"

_OF_THIS_RELEASE: Final = ("!from", "!history", "!tombstones")
_AGAIN: Final = {Outcome.AGAIN, Outcome.BEHIND, Outcome.GONE}


class Entry(NamedTuple):
    """The last message of a key.

    Attributes:
        body: its bytes.
        stamp: its timestamp (microseconds since 1970).
        ends: when its time to live ends (microseconds since 1970); infinity if it has none.
    """

    body: bytes
    stamp: int
    ends: float


class _Map:
    """The values of one reading from the begin.

    Attributes:
        size: bytes of the keys and values, and `ENTRY_BYTES` for each.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.size = 0
        self._ends = DueTimes[bytes]()

    def put(self, key: bytes, entry: Entry) -> None:
        old = self.entries.get(key)  # Another thread may read the map, and the key is not to be missing meanwhile.
        self.entries[key] = entry
        self.size += _size(key, entry) - (0 if old is None else _size(key, old))
        if entry.ends < float("inf"):
            self._ends.set(key, entry.ends)
        elif old is not None:
            self._ends.discard(key)

    def remove(self, key: bytes) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.size -= _size(key, entry)
            self._ends.discard(key)

    def is_due(self, now: float) -> bool:
        return self._ends.deadline() <= now

    def expire(self, now: float) -> None:
        for key in self._ends.take(now):
            self.remove(key)


def _size(key: bytes, entry: Entry) -> int:
    return len(key) + len(entry.body) + ENTRY_BYTES + (ENDS_BYTES if entry.ends < float("inf") else 0)


class View:
    """The view of one topic; it neither sends nor waits.

    Args:
        sender: the client ID.
        topic: its name.
        bytes_max: limit of the bytes of one map.

    Attributes:
        sender: as above. Another one may go on with the view.
        absent: True if no server holds the topic; the view is empty then.
        lost: number of reports of lost messages.
        begun: number of times that it has begun anew.
    """

    def __init__(self, sender: str, topic: str, bytes_max: int = TABLE_BYTES_MAX) -> None:
        self.sender, self.topic, self._bytes_max = sender, topic, bytes_max
        self._shown = _Map()
        self.absent = False
        self.lost = 0
        self.begun = -1
        self._begin()

    def _begin(self) -> None:
        self.begun += 1
        self._building = _Map()
        self._after: Position | None = None
        self._history, self._tombstones = "", 0

    @property
    def values(self) -> dict[bytes, Entry]:
        """The value of each key, as of the last complete look. `expire` removes those with an ended time to live."""
        return self._shown.entries

    @property
    def size(self) -> int:
        """Bytes of the values, and of a new map beside them."""
        return self._shown.size + (0 if self._building is self._shown else self._building.size)

    def is_due(self, now: float) -> bool:
        """Return True if `expire` has something to do."""
        return self._shown.is_due(now)

    def expire(self, now: float) -> None:
        """Remove the values with a time to live that has ended.

        Args:
            now: the clock (microseconds since 1970).
        """
        self._shown.expire(now)

    def request(self) -> Read:
        """Return the request for the next page."""
        read = Read(self.sender, self.topic, self._after, records_max=PAGE_RECORDS, bytes_max=PAGE_BYTES)
        if self._after is None:
            read.start = 0  # An earlier release refuses it, and would not say `again`.
        read.history, read.tombstones = self._history, self._tombstones
        return read

    def find_absent(self) -> None:
        """Show nothing, because no server holds the topic."""
        self._begin()
        self._shown, self.absent = self._building, True

    def receive(self, status: Status, now: float) -> bool:
        """Process an answer; return True if there may be another page now.

        Args:
            now: the clock (microseconds since 1970).

        Raises:
            TooLarge: the table has more bytes than its limit.
            Refused: the server does not answer such a request.
            Unavailable: the answer cannot be read.
        """
        self.absent = False
        if status.outcome in _AGAIN:
            self._begin()
            return True
        if status.outcome not in {Outcome.SUCCESS, Outcome.LOST, Outcome.EMPTY} or status.message is None:
            raise Refused("table", self.topic, status.reason.replace("_", " ") or str(status.outcome))
        more = status.message != self._after
        if status.records:
            self._add(status, now)
        self.lost += status.outcome is Outcome.LOST
        self._after, self._history, self._tombstones = status.message, status.history, status.number + 1
        if not more:
            self._shown = self._building
        return more

    def _add(self, status: Status, now: float) -> None:
        body, built = bytes(status.body), self._building
        try:
            if crc32(body) != status.checksum:
                raise DecodeError("the checksum of the records differs")
            records = Records(body)
        except DecodeError as error:
            raise Unavailable("table", self.topic, 0, str(error)) from None
        bodies = records.bodies()
        for run in records.runs:
            keys, blocks = run.keys or [b""] * len(run.ends), run.headers or [b""] * len(run.ends)
            for key, block, value in zip(keys, blocks, bodies, strict=False):
                if not key:
                    continue
                ends = ends_at(block, run.stamp) if block else float("inf")
                if value and ends > now:
                    built.put(key, Entry(value, run.stamp, ends))
                else:
                    built.remove(key)
        built.expire(now)
        if built.size > self._bytes_max:
            raise TooLarge(f"table of {self.topic}", built.size, self._bytes_max, "TABLE_BYTES_MAX")


def explained(error: Refused) -> Refused:
    """Return the refusal of a server of an earlier release with what to do."""
    if any(word in error.reason for word in _OF_THIS_RELEASE):
        return Refused("table", error.topic, f"{error.reason}; {UPGRADE}")
    return error
