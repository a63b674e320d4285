"""The standby's side: what the primary sends is kept in the stream file, acknowledged, and applied when all have it.

    entries(…) → to_write() → the file is cut, appended to and synced → synced(…) → outgoing(): an ACK
    to_apply() → the store's commit → applied_to(…)

A standby has an applied entry, which its store ends with, and a chain of **staged** entries behind it, which are in the
stream file and can still be taken back: the primary's own commit may have found the disk full. Each entry is attached
to the one that it names, and what stood behind that one is dropped. An entry at or below the end is one that came late.

It acknowledges what an fsync has covered, and only to the highest term it knows. It applies what the primary calls
committed: what is on the disks of all members that are waited for. Where the primary has nothing of what it names, its
store is no beginning of the primary's: nothing is appended, and it is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.standby import IDS_MAX, Ack, Entries, EntryId, Follow, join_ids
from pubsub.server.standby.replication.entries import Entry
from pubsub.server.topic.commits import FORM

if TYPE_CHECKING:
    from random import Random

STAGED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of entries that are not applied yet; more are not taken, and asked for again later."""

APPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of entries that are applied in one transaction, where it is not a single one."""

QUESTIONS_MAX: Final = 1024
"""ENTRYs that wait for an fsync; the loops of older ones are confirmed by later ones."""


class Write(NamedTuple):
    """What is to be done to the stream file, and then synced.

    Attributes:
        cut: the entry behind which all is dropped first; None: nothing is.
        entries: to be appended.
    """

    cut: EntryId | None
    entries: list[Entry]


class Question(NamedTuple):
    """An ENTRY that is not acknowledged yet.

    Attributes:
        end: the entry that is to be on the disk first.
    """

    term: int
    loop: int
    end: EntryId


@dataclass(slots=True)
class _Copying:
    snapshot: EntryId
    token: int


class Following:
    """A member that is not the primary.

    Args:
        server, store, member: whose messages these are.
        applied: the entry that its store ends with.
        staged: the entries of its stream file behind that one, all of them synced.
        random: for tokens.
        now: monotonic seconds.
        beat_seconds: between two FOLLOWs.

    Attributes:
        address: where this member is reached as a server; "" where it is not to be said.
        applied: the entry that the store ends with.
        known: the highest term heard of.
        heard: when a primary of that term was heard last, monotonic seconds.
    """

    def __init__(
        self,
        server: str,
        store: str,
        member: str,
        applied: EntryId,
        staged: Iterable[Entry],
        random: Random,
        now: float,
        beat_seconds: float,
    ) -> None:
        self._names, self.address = (server, store, member), ""
        self._random, self._beat = random, beat_seconds
        self.applied = applied
        self._staged = deque(staged)
        self._first = 0  # Entries are counted from here on; this is the place of the first staged one.
        self._places = {applied: -1} | {entry.id: place for place, entry in enumerate(self._staged)}
        self._staged_bytes = sum(entry.size for entry in self._staged)
        self._written = self._durable = self._committed = self._applying = 0  # Places behind the last one.
        self._written = self._durable = len(self._staged)
        self._cut = False
        self._questions: deque[Question] = deque(maxlen=QUESTIONS_MAX)
        self.known = self._term = 0
        self.heard = self._appended_at = now
        self._asked_at = self._follow_at = now - beat_seconds
        self._gap = self._progress = self._full = False
        self._handed: EntryId | None = None
        self._copying: _Copying | None = None
        self._token = 0
        self._renew()

    def _renew(self) -> None:
        """What this member has is different now: a copy that was asked for before counts no more."""
        self._token = self._random.randrange(1, NUMBER_MAX)

    @property
    def _next(self) -> int:
        return self._first + len(self._staged)

    @property
    def end(self) -> EntryId:
        """The last entry that it has, synced or not."""
        return self._staged[-1].id if self._staged else self.applied

    @property
    def durable(self) -> EntryId:
        """The last entry that is on its disk."""
        return self._at(self._durable)

    def _at(self, behind: int) -> EntryId:
        """The last entry before a place."""
        return self._staged[behind - self._first - 1].id if behind > self._first else self.applied

    @property
    def floor(self) -> int:
        """The highest term it knows: a lower one is not followed."""
        return max(self.known, self.end.term)

    @property
    def handed(self) -> bool:
        """Whether the primary hands over now, and this member has exactly what the primary has, on its disk."""
        return self._handed is not None and self._handed == self.end == self.durable

    # From the primary

    def entries(self, message: Entries, entries: Sequence[Entry], now: float) -> None:
        """Entries, or none and the question whether the term is still followed.

        Args:
            entries: those that the message lists.
            now: monotonic seconds.
        """
        if message.term < self.floor:
            return
        self.known = max(self.known, message.term)
        self.heard, self._handed = now, message.end if message.hand else None
        if self._copying is not None:
            return
        for entry in entries:
            if not self._append(entry, now):
                break
        self._commit(message.committed, entries)
        if message.end not in self._places:
            self._gap = self._gap or now - self._appended_at >= self._beat
            return
        self._questions.append(Question(message.term, message.loop, message.end))

    def _commit(self, committed: EntryId, listed: Sequence[Entry]) -> None:
        """Take note of what is on all disks: this entry, and what the same message lists before it.

        Who lacks much does not have that very entry for long, and has to apply the rest to make room.
        """
        ids = (committed, *(entry.id for entry in reversed(listed)))
        found = next((one for one in ids if one <= committed and one in self._places), None)
        if found is not None:
            self._committed = max(self._committed, self._places[found] + 1)

    def _append(self, entry: Entry, now: float) -> bool:
        """Attach an entry to the one that it names; whether the next one may be tried."""
        if self._is_late(entry):
            return True
        place = self._attached_to(entry)
        if place is None:
            self._gap = True
            return False
        if self._staged and self._staged_bytes + entry.size > STAGED_BYTES_MAX:
            return False
        if place + 1 < self._next:
            self._take_back(place + 1)
        self._places[entry.id] = self._next
        self._staged.append(entry)
        self._staged_bytes += entry.size
        self._appended_at = now
        self._renew()
        return True

    def _is_late(self, entry: Entry) -> bool:
        return entry.id <= self.end

    def _attached_to(self, entry: Entry) -> int | None:
        """The place of the entry that this one follows, None where it is not here or applied and followed."""
        place = self._places.get(entry.previous)
        return None if place is None or place + 1 < max(self._applying, self._first) else place

    def _take_back(self, behind: int) -> None:
        """Drop what stands from a place on: it did not come to be."""
        while self._next > behind:
            gone = self._staged.pop()
            del self._places[gone.id]
            self._staged_bytes -= gone.size
        if self._written > behind:
            self._written, self._cut = behind, True
        self._durable = min(self._durable, behind)
        self._committed = min(self._committed, behind)

    # The stream file

    def to_write(self) -> Write | None:
        """What is to be written and synced, None for nothing; it counts as written from now on."""
        if not self._cut and self._written == self._next:
            return None
        cut = self._at(self._written) if self._cut else None
        entries = [self._staged[place - self._first] for place in range(self._written, self._next)]
        self._cut, self._written = False, self._next
        return Write(cut, entries)

    def synced(self, entry: EntryId) -> None:
        """The file is synced up to an entry that was written; where it was taken back since, that says nothing."""
        place = self._places.get(entry)
        if place is not None and place + 1 > self._durable:
            self._durable = place + 1
            self._progress = True

    def full_disk(self) -> EntryId:
        """There was no space for what was to be written.

        Returns:
            The entry behind which the file is to be cut: what was synced before.
        """
        self._take_back(self._durable)
        self._written, self._cut, self._full = self._durable, False, True
        return self.durable

    # The store

    @property
    def may_apply(self) -> bool:
        """Whether there are entries to be applied."""
        return min(self._committed, self._durable) > self._first

    def to_apply(self) -> list[Entry]:
        """Entries that are to be applied in one transaction; none before `applied_to` was called for the last ones."""
        if self._applying > self._first:
            return []
        out: list[Entry] = []
        size = 0
        for entry in self._staged:
            size += entry.size
            if self._first + len(out) >= min(self._committed, self._durable) or (out and size > APPLY_BYTES_MAX):
                break
            out.append(entry)
        self._applying = self._first + len(out)
        return out

    def applied_to(self, entry: EntryId) -> None:
        """The store ends with this entry, durably."""
        while self.applied != entry:
            gone = self._staged.popleft()
            del self._places[self.applied]
            self.applied = gone.id
            self._first += 1
            self._staged_bytes -= gone.size
        self._applying = self._first

    def promote(self) -> list[Entry]:
        """This member becomes the primary: what is to be applied first, all of it, before it serves."""
        return list(self._staged)

    # To the primary

    def outgoing(self, now: float) -> list[Ack | Follow]:
        """What is to be sent: ACKs of what is synced, FOLLOW with each heartbeat and after a gap."""
        out: list[Ack | Follow] = []
        ack = self._acknowledgement()
        if ack is not None:
            out.append(ack)
        asks = self._gap and now - self._asked_at >= self._beat
        if asks or now >= self._follow_at:
            out.append(self.follow(gap=asks))
            self._follow_at = now + self._beat
            if asks:
                self._asked_at = now
            self._gap = self._gap and not asks
        return out

    def connected(self, now: float) -> None:
        """There is a new link to the primary, over which nothing was said yet: a FOLLOW is due."""
        self._follow_at = now

    def deadline(self) -> float:
        """When a FOLLOW is due (monotonic seconds)."""
        return min(self._follow_at, self._asked_at + self._beat if self._gap else self._follow_at)

    def _acknowledgement(self) -> Ack | None:
        loop = 0
        while self._questions and self._is_confirmed(self._questions[0]):
            question = self._questions.popleft()
            # One of a lower term is answered by nobody any more, one whose entry was taken back will be asked again.
            if question.term >= self.floor and question.end in self._places:
                loop = max(loop, question.loop)
        if not (loop or self._progress or self._full):
            return None
        full, self._progress, self._full = int(self._full), False, False
        return Ack(*self._names, self.floor, loop, self.durable, full)

    def _is_confirmed(self, question: Question) -> bool:
        """Whether an ENTRY waits for no fsync any more."""
        place = self._places.get(question.end)
        return place is None or place < self._durable or question.term < self.floor

    def follow(self, *, gap: bool = False) -> Follow:
        """Where this member stands, and which term it knows. `gap`: whether all behind that is to be sent again."""
        newest = [entry.id for entry in list(self._staged)[-IDS_MAX:]]
        ids = join_ids([self.applied, *newest])
        return Follow(*self._names, self.floor, self._token, int(gap), ids, address=self.address, form=FORM)

    # A copy

    def begin_copy(self, term: int, token: int, snapshot: EntryId) -> bool:
        """The primary begins to send a copy of its store; whether it counts: only as the answer to the last FOLLOW.

        Until it is there, or given up, entries are not taken: the primary keeps what follows its snapshot.

        Args:
            term: the primary's.
            token: of the FOLLOW that it answers.
            snapshot: the entry that the copy ends with.
        """
        if term < self.floor or token != self._token:
            return False
        self.known = max(self.known, term)
        self._copying = _Copying(snapshot, token)
        return True

    def give_up_copy(self) -> None:
        """The copy does not come: what was here before counts again."""
        self._copying = None

    def copied(self, token: int) -> bool:
        """The copy is here in full, and may take the place of all that was here; whether it may."""
        copying = self._copying
        if copying is None or copying.token != token or token != self._token:
            return False
        self.applied = copying.snapshot
        self._staged.clear()
        self._questions.clear()
        self._first = self._written = self._durable = self._committed = self._applying = 0
        self._places = {self.applied: -1}
        self._staged_bytes = 0
        self._copying, self._cut, self._gap = None, False, False
        self._renew()
        return True
