"""Repair of batches that are damaged on one member's disk, from the other member's copy.

    the primary   `Repairs`: a request finds a damaged batch, and waits while the other member is asked for it
    the standby   `Answers`: answers after it has applied all entries that the primary had then, with the batch or
                  without

A loss is final once a subscriber receives it, and a wait is not. Therefore, while the store has another member, a batch
counts as lost only after that member has answered that it has no intact copy. If that member is away, the request waits
until the member is back or an operator removes it.

Log number and offset name the same batch in both stores as long as both stores have one history. An answer therefore
counts only from a member that has applied an entry of the primary's term. A member with a different history never has.

The rule is docs/explanation/failover.md, F8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.protocol.batch import DELAYED, check_batch
from pubsub.protocol.standby import EntryId, Repair
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.topic.changes import BatchRepaired
from pubsub.server.topic.delivery import Batch

WANTED_MAX: Final = 1024
"""Maximum number of damaged batches to ask for. Requests that find more wait until there is room."""

UNDER_WAY_MAX: Final = 4
"""Maximum number of batches asked for at a time: each may be as large as a put."""

LACKING_MAX: Final = 65_536
"""Maximum number of batches remembered as missing at the other member too. Beyond it the oldest is asked for again."""

AGAIN_BEATS: Final = 4
"""Heartbeats of the members' link after which an unanswered question is repeated."""

Place = tuple[int, int]
"""The number of a log in the store, and the offset at which a batch begins."""


class Settled(NamedTuple):
    """The result for a batch that was asked for.

    Attributes:
        change: the repair; None if the other member has no intact copy either.
    """

    log: int
    change: BatchRepaired | None


class Repairs:
    """The primary's questions to the other member.

    Args:
        identity: of this member, for its messages.
        beat: seconds between two heartbeats of the members' link.
    """

    def __init__(self, identity: Identity, beat: float) -> None:
        self._me, self._beat = identity, beat
        self._other = ""
        self._wanted: dict[Place, float] = {}
        self._lacking: dict[Place, None] = {}

    def ask_of(self, other: str) -> None:
        """Set the ID of the store's other member. With "" there is none, and a damaged batch is lost."""
        if other != self._other:
            self._other = other
            self._lacking.clear()
        if not other:
            self._wanted.clear()

    def ask_repair(self, log: int, offset: int) -> bool:
        """Ask the other member for a damaged batch. Return False if that member cannot have an intact copy."""
        place = log, offset
        if not self._other or place in self._lacking:
            return False
        if len(self._wanted) < WANTED_MAX:
            self._wanted.setdefault(place, float("-inf"))
        return True

    @property
    def wanted(self) -> int:
        return len(self._wanted)

    def outgoing(self, term: int, end: EntryId, now: float) -> list[Repair]:
        """Return the questions that are due, new or repeated.

        Args:
            term: of the primary.
            end: the primary's last entry.
            now: monotonic seconds.
        """
        me, out = self._me, []
        for place in list(self._wanted)[:UNDER_WAY_MAX]:
            if now - self._wanted[place] >= AGAIN_BEATS * self._beat:
                self._wanted[place] = now
                out.append(Repair(me.server, me.store, me.member, "wanted", term, *place, end=end))
        return out

    def receive(self, message: Repair, term: int, publishers: int) -> Settled | None:
        """Process the other member's answer about a batch.

        Args:
            message: as decoded.
            term: of the primary.
            publishers: the number that the store gives to its next publisher.

        Returns:
            The result; None if the answer does not count, and the batch is asked for again.
        """
        place = message.log, message.offset
        if place not in self._wanted or (message.member, message.term) != (self._other, term):
            return None
        change = None
        if message.step == "none":
            if len(self._lacking) >= LACKING_MAX:
                del self._lacking[next(iter(self._lacking))]
            self._lacking[place] = None
        elif message.step != "batch" or not _is_verified(message, publishers):
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


def _is_verified(message: Repair, publishers: int) -> bool:
    try:
        check_batch(message.body, message.count, message.checksum, delays=DELAYED)
    except DecodeError:
        return False
    return 0 < message.publisher < publishers


class Answers:
    """The primary's questions to a standby, until the standby can answer them.

    Args:
        identity: of this member, for its messages.
        read: returns the batch at an offset of a log, by the log's number; None if there is no intact batch.
    """

    def __init__(self, identity: Identity, read: Callable[[int, int], Batch | None]) -> None:
        self._me, self._read = identity, read
        self._asked: dict[Place, Repair] = {}

    def asked(self, message: Repair) -> None:
        """Record a question of the primary. It replaces an earlier one about the same batch."""
        if message.step != "wanted":
            return
        self._asked.pop((message.log, message.offset), None)
        self._asked[message.log, message.offset] = message
        while len(self._asked) > UNDER_WAY_MAX:
            del self._asked[next(iter(self._asked))]

    def outgoing(self, applied: EntryId, floor: int) -> list[Repair]:
        """Return the answers that are possible now.

        Args:
            applied: the last entry of the store.
            floor: the highest term that this member knows. Questions under a lower term get no answer.

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
