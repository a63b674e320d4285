"""Batches that are damaged on one member's disk, asked of the other one before anybody is told that they are lost.

    the primary   `Repairs`: a request meets a batch that is not what was put; it waits while the other member is asked
    the standby   `Answers`: has applied all that the primary had then, and says what it has there, or that it has not

A loss that is told is final, and to wait is not: so as long as the store has another member, a batch is lost only when
that one has said so. One that is away is waited for, until it is back or an operator removes it.

Where a batch is, both members' stores say alike, by the log's number and the offset, as long as one history is behind
both. So an answer counts only from who has applied an entry of the very term that asks: a member whose store went
another way never has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.protocol.batch import check_batch
from pubsub.protocol.standby import EntryId, Repair
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.topic.changes import BatchRepaired
from pubsub.server.topic.delivery import Batch

WANTED_MAX: Final = 1024
"""Damaged batches that are to be asked for; requests that meet more wait until there is room."""

UNDER_WAY_MAX: Final = 4
"""Batches that are asked for at a time: each may be as large as a put."""

LACKING_MAX: Final = 65_536
"""Batches that the other member has not either, as far as remembered; the oldest is asked for anew."""

AGAIN_BEATS: Final = 4
"""Heartbeats of the members' link after which what was not answered is asked again."""

Place = tuple[int, int]
"""A log by its number in the store, and the offset that a batch begins at."""


class Settled(NamedTuple):
    """A batch that is not asked for any more.

    Attributes:
        change: the repair; None: the other member has not got it either.
    """

    log: int
    change: BatchRepaired | None


class Repairs:
    """What a primary asks of the other member.

    Args:
        identity: whose messages these are.
        beat: seconds between two heartbeats of the members' link.
    """

    def __init__(self, identity: Identity, beat: float) -> None:
        self._me, self._beat = identity, beat
        self._other = ""
        self._wanted: dict[Place, float] = {}
        self._lacking: dict[Place, None] = {}

    def ask_of(self, other: str) -> None:
        """The store's other member, by its ID; "" where there is none, and what is damaged is lost."""
        if other != self._other:
            self._other = other
            self._lacking.clear()
        if not other:
            self._wanted.clear()

    def mends(self, log: int, offset: int) -> bool:
        """Whether the other member may have a batch that is damaged here; it is asked then."""
        place = log, offset
        if not self._other or place in self._lacking:
            return False
        if len(self._wanted) < WANTED_MAX:
            self._wanted.setdefault(place, float("-inf"))
        return True

    @property
    def wanted(self) -> int:
        """How many batches are asked for."""
        return len(self._wanted)

    def outgoing(self, term: int, end: EntryId, now: float) -> list[Repair]:
        """What is to be asked now, or again.

        Args:
            term: the primary's.
            end: its last entry.
            now: monotonic seconds.
        """
        me, out = self._me, []
        for place in list(self._wanted)[:UNDER_WAY_MAX]:
            if now - self._wanted[place] >= AGAIN_BEATS * self._beat:
                self._wanted[place] = now
                out.append(Repair(me.server, me.store, me.member, "wanted", term, *place, end=end))
        return out

    def heard(self, message: Repair, term: int, publishers: int) -> Settled | None:
        """What the other member says of a batch.

        Args:
            term: the primary's.
            publishers: the number that the store gives to its next publisher.

        Returns:
            What came of it; None where this says nothing, and the batch is asked for again.
        """
        place = message.log, message.offset
        if place not in self._wanted or (message.member, message.term) != (self._other, term):
            return None
        change = None
        if message.step == "none":
            if len(self._lacking) >= LACKING_MAX:
                del self._lacking[next(iter(self._lacking))]
            self._lacking[place] = None
        elif message.step != "batch" or not _is_sound(message, publishers):
            return None
        else:
            change = BatchRepaired(
                *place,
                message.count,
                message.publisher,
                message.counter,
                message.stamp,
                message.checksum,
                message.total,
                message.body,
            )
        del self._wanted[place]
        return Settled(message.log, change)


def _is_sound(message: Repair, publishers: int) -> bool:
    try:
        check_batch(message.body, message.count, message.checksum)
    except DecodeError:
        return False
    return 0 < message.publisher < publishers


class Answers:
    """What a standby was asked for, until it can tell.

    Args:
        identity: whose messages these are.
        read: the batch that begins at an offset of a log, by the log's number; None where there is none that is what
            was put.
    """

    def __init__(self, identity: Identity, read: Callable[[int, int], Batch | None]) -> None:
        self._me, self._read = identity, read
        self._asked: dict[Place, Repair] = {}

    def asked(self, message: Repair) -> None:
        """The primary asks; a later question takes an earlier one's place."""
        if message.step != "wanted":
            return
        self._asked.pop((message.log, message.offset), None)
        self._asked[message.log, message.offset] = message
        while len(self._asked) > UNDER_WAY_MAX:
            del self._asked[next(iter(self._asked))]

    def outgoing(self, applied: EntryId, floor: int) -> list[Repair]:
        """What can be told now.

        Args:
            applied: the entry that the store ends with.
            floor: the highest term that this member knows; who asks under a lower one is told nothing.

        Raises:
            StorageError: the disk failed.
        """
        out = []
        for place, message in list(self._asked.items()):
            if message.term < floor:
                del self._asked[place]
            elif applied.term == message.term and applied >= message.end:
                del self._asked[place]
                out.append(self._answer(message))
        return out

    def _answer(self, asked: Repair) -> Repair:
        me, batch = self._me, self._read(asked.log, asked.offset)
        head = (me.server, me.store, me.member)
        if batch is None or batch.body is None:
            return Repair(*head, "none", asked.term, asked.log, asked.offset)
        return Repair(
            *head,
            "batch",
            asked.term,
            asked.log,
            asked.offset,
            count=batch.count,
            publisher=batch.publisher,
            counter=batch.counter,
            stamp=batch.stamp,
            checksum=batch.checksum,
            total=batch.total,
            body=batch.body,
        )
