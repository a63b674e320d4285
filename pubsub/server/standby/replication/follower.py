"""The standby's side: it writes the primary's entries to the stream file, acknowledges them, and applies them.

    entries(…) → to_write() → the file is cut, appended to and synced → synced(…) → outgoing(): an ACK
    to_apply() → the store's commit → applied_to(…)

The store of a standby ends with an applied entry. Behind it is a chain of **staged** entries. They are in the stream
file, and can still be taken back if the disk of the primary was full at its own commit. Each new entry is attached to
the entry that it names as previous, and all entries behind that one are dropped. An entry at or below the end came
late.

A standby acknowledges entries that an fsync has covered, and only to the highest term that it knows. It applies entries
that the primary calls committed: those on the disks of all required members. If the primary knows none of the entries
that a FOLLOW names, the standby's store is not a prefix of the primary's. Then nothing is appended, and the store is
copied.

The rule is docs/explanation/failover.md, F3.
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
"""Maximum bytes of entries that are not applied. A standby takes no more, and asks for the rest again later."""

APPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of entries applied in one transaction, unless a single entry is larger."""

QUESTIONS_MAX: Final = 1024
"""Maximum number of ENTRYs that wait for an fsync. The ACK of a later loop confirms older ones too."""


class Write(NamedTuple):
    """Work for the stream file: cut, append, then sync.

    Attributes:
        cut: drop all entries behind this one first; None for no cut.
        entries: the entries to append.
    """

    cut: EntryId | None
    entries: list[Entry]


class Question(NamedTuple):
    """An ENTRY that is not acknowledged yet.

    Attributes:
        end: the entry that must be on the disk first.
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
        server, store, member: IDs of this member, for its messages.
        applied: the last entry of its store.
        staged: the entries of its stream file behind `applied`, all synced.
        random: for tokens.
        now: monotonic seconds.
        beat_seconds: interval between two FOLLOWs.

    Attributes:
        address: address of this member as a server; "" to send none.
        applied: the last entry of the store.
        known: the highest term received.
        received_at: monotonic seconds at which a primary of that term was last heard.
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
        self._first = 0  # Place of the first staged entry. Places count the entries since the start or the last copy.
        self._places = {applied: -1} | {entry.id: place for place, entry in enumerate(self._staged)}
        self._staged_bytes = sum(entry.size for entry in self._staged)
        self._written = self._durable = self._committed = self._applying = 0  # Each is the place after the last entry.
        self._written = self._durable = len(self._staged)
        self._cut = False
        self._questions: deque[Question] = deque(maxlen=QUESTIONS_MAX)
        self.known = self._term = 0
        self.received_at = self._appended_at = now
        self._asked_at = self._follow_at = now - beat_seconds
        self._gap = self._progress = self._full = False
        self._handed: EntryId | None = None
        self._copying: _Copying | None = None
        self._token = 0
        self._renew()

    def _renew(self) -> None:
        """Choose a new token, because this member's entries changed. A copy requested earlier no longer counts."""
        self._token = self._random.randrange(1, NUMBER_MAX)

    @property
    def _next(self) -> int:
        return self._first + len(self._staged)

    @property
    def end(self) -> EntryId:
        """The last entry of this member, synced or not."""
        return self._staged[-1].id if self._staged else self.applied

    @property
    def durable(self) -> EntryId:
        return self._at(self._durable)

    def _at(self, behind: int) -> EntryId:
        return self._staged[behind - self._first - 1].id if behind > self._first else self.applied

    @property
    def floor(self) -> int:
        """The highest term that this member knows. It follows no lower term."""
        return max(self.known, self.end.term)

    @property
    def handed(self) -> bool:
        """True if the primary hands over now and this member has exactly the primary's entries on its disk."""
        return self._handed is not None and self._handed == self.end == self.durable

    # Messages from the primary

    def entries(self, message: Entries, entries: Sequence[Entry], now: float) -> None:
        """Process an ENTRY. Without entries it only asks whether this member still follows the term.

        Args:
            message: as decoded.
            entries: the entries that the message lists.
            now: monotonic seconds.
        """
        if message.term < self.floor:
            return
        self.known = max(self.known, message.term)
        self.received_at, self._handed = now, message.end if message.hand else None
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
        """Record as committed: `committed`, or the last entry before it that is here and that the same message lists.

        A standby that is far behind lacks `committed` itself for a long time. It must apply the entries before it to
        make room.
        """
        ids = (committed, *(entry.id for entry in reversed(listed)))
        found = next((one for one in ids if one <= committed and one in self._places), None)
        if found is not None:
            self._committed = max(self._committed, self._places[found] + 1)

    def _append(self, entry: Entry, now: float) -> bool:
        """Attach an entry to its previous one. Return True if the next entry may be tried."""
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
        """Return the place of the previous entry. None if it is not here, or if an applied entry already follows it."""
        place = self._places.get(entry.previous)
        return None if place is None or place + 1 < max(self._applying, self._first) else place

    def _take_back(self, behind: int) -> None:
        """Drop the entries from a place on: the primary took them back."""
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
        """Return the work for the stream file, None if there is none. It counts as written from now on."""
        if not self._cut and self._written == self._next:
            return None
        cut = self._at(self._written) if self._cut else None
        entries = [self._staged[place - self._first] for place in range(self._written, self._next)]
        self._cut, self._written = False, self._next
        return Write(cut, entries)

    def synced(self, entry: EntryId) -> None:
        """Record that the file is synced up to an entry. It does not count if the entry was taken back since."""
        place = self._places.get(entry)
        if place is not None and place + 1 > self._durable:
            self._durable = place + 1
            self._progress = True

    def full_disk(self) -> EntryId:
        """Take back all entries that are not synced, because the disk was full.

        Returns:
            The last synced entry. The file must be cut behind it.
        """
        self._take_back(self._durable)
        self._written, self._cut, self._full = self._durable, False, True
        return self.durable

    # The store

    @property
    def may_apply(self) -> bool:
        return min(self._committed, self._durable) > self._first

    def to_apply(self) -> list[Entry]:
        """Return the entries for one transaction; none until `applied_to` is called for the previous ones."""
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
        """Record that the store now ends with this entry, durably."""
        while self.applied != entry:
            gone = self._staged.popleft()
            del self._places[self.applied]
            self.applied = gone.id
            self._first += 1
            self._staged_bytes -= gone.size
        self._applying = self._first

    def promote(self) -> list[Entry]:
        """Return all entries that this member must apply before it serves as the primary."""
        return list(self._staged)

    # Messages to the primary

    def outgoing(self, now: float) -> list[Ack | Follow]:
        """Return the messages that are due: ACKs of synced entries, and a FOLLOW at each heartbeat and after a gap."""
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
        """Make a FOLLOW due at once, because the link to the primary is new."""
        self._follow_at = now

    def deadline(self) -> float:
        """Return the time at which a FOLLOW is due, in monotonic seconds."""
        return min(self._follow_at, self._asked_at + self._beat if self._gap else self._follow_at)

    def _acknowledgement(self) -> Ack | None:
        loop = 0
        while self._questions and self._is_confirmed(self._questions[0]):
            question = self._questions.popleft()
            # A lower term gets no acknowledgement. The primary asks again about an entry that it took back.
            if question.term >= self.floor and question.end in self._places:
                loop = max(loop, question.loop)
        if not (loop or self._progress or self._full):
            return None
        full, self._progress, self._full = int(self._full), False, False
        return Ack(*self._names, self.floor, loop, self.durable, full)

    def _is_confirmed(self, question: Question) -> bool:
        """Return True if an ENTRY no longer waits for an fsync."""
        place = self._places.get(question.end)
        return place is None or place < self._durable or question.term < self.floor

    def follow(self, *, gap: bool = False) -> Follow:
        """Make a FOLLOW with the end of this member and its term. `gap` asks for all later entries again."""
        newest = [entry.id for entry in list(self._staged)[-IDS_MAX:]]
        ids = join_ids([self.applied, *newest])
        return Follow(*self._names, self.floor, self._token, int(gap), ids, address=self.address, form=FORM)

    # Copy of the store

    def begin_copy(self, term: int, token: int, snapshot: EntryId) -> bool:
        """Accept a copy of the primary's store. Return False if it does not answer the last FOLLOW.

        Until the copy is complete or given up, this member takes no entries. The primary keeps those after its
        snapshot.

        Args:
            term: of the primary.
            token: of the FOLLOW that the copy answers.
            snapshot: the last entry of the copy.
        """
        if term < self.floor or token != self._token:
            return False
        self.known = max(self.known, term)
        self._copying = _Copying(snapshot, token)
        return True

    def give_up_copy(self) -> None:
        """Give up a copy that does not arrive. The member's own entries count again."""
        self._copying = None

    def copied(self, token: int) -> bool:
        """Replace all entries by the complete copy. Return False if the copy no longer counts."""
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
