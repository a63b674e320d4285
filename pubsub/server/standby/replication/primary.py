"""The primary's side: the output of a loop is held until each required member has the loop's entry on its disk.

    begin(changes) → an entry, appended to the stream file → outgoing() → the store's commit
        → committed() or taken_back() → hold(answers) → … acknowledged() → released()

Loops are counted. An ENTRY names the loop up to which it was computed, and the last entry at that time. The standby's
ACK of that loop has two meanings: the standby has everything up to that entry, and it knew no higher term when it sent
the ACK. Both are needed. A loop without changes needs the second one: otherwise a primary that was replaced without
noticing would go on answering questions. Each held loop therefore waits for one number, whether it has an entry or not.

The required members always include those that are in sync by the register. A joining standby is first required. It is
proposed when it has everything up to that moment. From the proposal on it stays required while the outcome is unknown.
A silent standby is dropped only after the register has chosen so. A standby counts as silent if it sends no ACK, even
if it sends other messages.

An entry has the first form of a commit until the standby's FOLLOW names another form. Until then both members can go
back to a release that reads no other form, because neither stream file has entries of one.

The rules are those of docs/explanation/failover.md, F1, F2, F4 and F9; docs/explanation/register.md, R6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pubsub.protocol.standby import ENTRIES_MAX, Ack, Entries, EntryId, Follow, join_entries, split_ids
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.standby.replication.progress import CatchUp, Progress
from pubsub.server.standby.replication.rejoin_backoff import RejoinBackoff
from pubsub.server.topic.changes import Change

HELD_TURNS_MAX: Final = 256
"""Maximum number of loops with held answers. Beyond it the primary takes no more requests."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes of held answers, and of entries without the required acknowledgement, with the same effect."""

WINDOW_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum bytes of entries under way to the standby."""

NEAR_LOOPS: Final = 64
"""Maximum number of loops that a standby may be behind when it is first required. These are under way, not missing."""

BELOW_MAX: Final = 2
"""Number of FOLLOWs in a row with an end below the last ACK. So many show that the standby's disk went back in time."""


class History(Protocol):
    """The entries in the primary's stream file."""

    def holds(self, entry: EntryId) -> bool:
        """Return True if the entry is in the primary's history and the file has all entries after it."""

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        """Return entries after one that the file holds: the first in any case, more up to `bytes_max`."""


@dataclass(slots=True)
class _Held:
    loop: int
    out: list[Any]
    size: int


class Leading:
    """One term of a primary.

    Args:
        server, store, member: IDs of this member, for its messages.
        term: chosen by the register.
        in_sync: the members in sync by the register, this one included.
        end: the last entry of the store.
        history: the stream file.
        now: monotonic seconds.
        silence_seconds: a standby that acknowledges nothing for this time is to be dropped.
        switch_seconds: maximum duration of a planned switch.

    Attributes:
        end: the last entry.
        loop: number of loops in this term.
        in_sync: the last chosen set.
        required: the other members whose acknowledgement is needed; all other members in sync are among them.
        deposed: True if a higher term is known. The primary then answers nothing.
        address: address of the other member as a server, from its last FOLLOW.
        stalled: True during a planned switch. The primary then takes no request.
    """

    def __init__(
        self,
        server: str,
        store: str,
        member: str,
        term: int,
        in_sync: Collection[str],
        end: EntryId,
        history: History,
        now: float,
        silence_seconds: float,
        switch_seconds: float,
    ) -> None:
        self._names, self._history = (server, store, member), history
        self.member, self.term, self.end = member, term, end
        self._silence, self._switch = silence_seconds, switch_seconds
        self.in_sync = frozenset(in_sync)
        self.required = set(self.in_sync - {member})
        self.loop = self._done = self._number = 0
        self._saved = self._before = end
        self._held: deque[_Held] = deque()
        self._unacknowledged: deque[tuple[EntryId, int]] = deque()
        self._held_bytes = self._unacknowledged_bytes = 0
        self._standby = next((Progress(name, now) for name in sorted(self.required)), None)
        self._catch_up: CatchUp | None = None
        self._rejoin_backoff = RejoinBackoff(silence_seconds)
        self._unsure = self._beat = self._handing = False
        self._stalled_at: float | None = None
        self.deposed, self.address, self._form = False, "", 1

    # Loops

    def begin(self, changes: Sequence[Change]) -> Entry | None:
        """Count a loop, before its commit.

        Args:
            changes: the changes that it commits; empty for a loop that only answers.

        Returns:
            The loop's entry, to be appended to the history before `outgoing`; None if there are no changes. The first
            loop of a term always has an entry, so that both members know the term even if one of them restarts.
        """
        self.loop += 1
        self._before = self.end
        if not changes and self._saved.term == self.term:
            return None
        self._number += 1
        entry = make_entry(EntryId(self.term, self._number), self.end, changes, self._form)
        self.end = entry.id
        if self.required:
            self._unacknowledged.append((entry.id, entry.size))
            self._unacknowledged_bytes += entry.size
        return entry

    def committed(self) -> None:
        """Record that the loop's own commit is done."""
        self._done = self.loop
        self._saved = self.end

    def taken_back(self) -> EntryId:
        """Take back the loop's entry, because the disk was full. Its number is not used again.

        Returns:
            The last entry of the history now.
        """
        self.end = self._before
        if self._unacknowledged and self._unacknowledged[-1][0] > self.end:
            self._unacknowledged_bytes -= self._unacknowledged.pop()[1]
        standby = self._standby
        if standby is not None:
            standby.durable = min(standby.durable, self.end)
            if standby.sent is not None and standby.sent > self.end:
                standby.go_back(self.end)
        # The loop's answers are computed after its question to the standby, so they need a new confirmation.
        self.loop = self._done = self.loop + 1
        return self.end

    def hold(self, out: Sequence[Any], size: int) -> None:
        """Hold the output of the loop, in order.

        Args:
            out: answers, announcements and steps of moves.
            size: their bytes.
        """
        if out:
            self._held.append(_Held(self.loop, list(out), size))
            self._held_bytes += size

    def released(self) -> list[Any]:
        """Return the output that may be sent now."""
        out: list[Any] = []
        while self._held and not self.deposed and self._held[0].loop <= self._confirmed():
            one = self._held.popleft()
            self._held_bytes -= one.size
            out += one.out
        return out

    def _confirmed(self) -> int:
        """Return the last loop that is on all required disks and was confirmed under this term."""
        standby = self._standby
        if standby is not None and standby.id in self.required:
            return min(self._done, standby.loop)
        return self._done

    @property
    def held(self) -> int:
        """Number of loops with held output."""
        return len(self._held)

    @property
    def full(self) -> bool:
        """True if the primary may take no more requests."""
        size = max(self._held_bytes, self._unacknowledged_bytes)
        return len(self._held) >= HELD_TURNS_MAX or size >= HELD_BYTES_MAX

    # Messages to and from the standby

    def beat(self) -> None:
        self._beat = True

    def outgoing(self) -> list[tuple[Entries, list[Entry]]]:
        """Return the ENTRYs that are due, each with its entries."""
        standby, out = self._standby, []
        if standby is None or self.deposed:
            return []
        while standby.sent is not None and standby.sent < self.end and standby.under_way_bytes < WINDOW_BYTES_MAX:
            room = WINDOW_BYTES_MAX - standby.under_way_bytes
            entries = self._history.read(standby.sent, room, ENTRIES_MAX)
            if not entries:
                break
            standby.under_way.extend((entry.id, entry.size) for entry in entries)
            standby.under_way_bytes += sum(entry.size for entry in entries)
            standby.sent = entries[-1].id
            out.append((self._entries(entries), entries))
        if not out and (self._beat or standby.asked < self.loop or (self._hands and not self._handing)):
            out.append((self._entries([]), []))
        self._beat = False
        standby.asked = self.loop
        return out

    def _entries(self, entries: list[Entry]) -> Entries:
        self._handing = self._hands
        body = join_entries(entry.listed for entry in entries)
        return Entries(*self._names, self.term, self.loop, self.end, self._committed(), int(self._handing), body)

    @property
    def _hands(self) -> bool:
        """True if the standby is to take over now. An ENTRY states this at once, and each heartbeat repeats it."""
        return self.stalled and not self._held and self._done == self.loop

    def _committed(self) -> EntryId:
        """Return the last entry that is on all required disks."""
        standby = self._standby
        if standby is not None and standby.id in self.required:
            return min(self._saved, standby.durable)
        return self._saved

    def acknowledged(self, ack: Ack, now: float) -> None:
        """Process an ACK of the standby."""
        standby = self._standby
        if self.learn_term(ack.term) or standby is None or ack.member != standby.id or ack.term != self.term:
            return
        standby.full = bool(ack.full)
        new = ack.loop > standby.loop or (ack.loop == self.loop and not ack.full)
        standby.loop = max(standby.loop, ack.loop)
        if ack.durable > standby.durable and ack.durable <= self.end and self._history.holds(ack.durable):
            standby.durable, standby.below, new = ack.durable, 0, True
            while standby.under_way and standby.under_way[0][0] <= ack.durable:
                standby.under_way_bytes -= standby.under_way.popleft()[1]
            while self._unacknowledged and self._unacknowledged[0][0] <= ack.durable:
                self._unacknowledged_bytes -= self._unacknowledged.popleft()[1]
        if new:
            standby.received_at = now

    def unreachable(self) -> None:
        """Count the standby as silent until its next ACK, because the link to it ended."""
        if self._standby is not None:
            self._standby.received_at = float("-inf")

    def followed(self, follow: Follow, now: float) -> None:
        """Process a FOLLOW, which names the last entries of a standby.

        Raises:
            DecodeError: its body names no entries.
        """
        ids = split_ids(follow.body)
        if self.learn_term(follow.known) or follow.member == self.member:
            return
        standby = self._standby_named(follow.member, now)
        if standby is None:
            return
        standby.token, standby.followed, self._form = follow.token, now, follow.form
        self.address = follow.address
        found = next((one for one in reversed(ids) if one <= self.end and self._history.holds(one)), None)
        standby.needs_copy = found is None
        if found is None:
            standby.go_back(None)
            return
        standby.below = standby.below + 1 if ids[-1] < standby.durable else 0
        if standby.below and standby.id not in self.required:
            standby.below, standby.durable = 0, found  # It may begin again at its own end.
        if standby.sent is None or follow.gap:
            standby.go_back(found)

    def _standby_named(self, member: str, now: float) -> Progress | None:
        """Return the progress of this standby, None for another one. A second standby waits until the first is lost."""
        standby = self._standby
        if standby is None or standby.id != member:
            received_at = now if standby is None else max(standby.received_at, standby.followed)
            if standby is not None and (standby.id in self.required or now - received_at < self._silence):
                return None
            self._standby, self._rejoin_backoff = Progress(member, now), RejoinBackoff(self._silence)
        return self._standby

    @property
    def standby(self) -> str:
        """ID of the member that receives the entries; "" if there is none."""
        return "" if self._standby is None else self._standby.id

    def lag(self, now: float) -> tuple[bool, int, int]:
        """Return True if the standby acknowledges and is fit, and the loops and bytes that it has not confirmed."""
        one, size = self._standby, self._unacknowledged_bytes
        return (False, 0, 0) if one is None else (self._is_well(one, now), self.loop - one.loop, size)

    def learn_term(self, term: int) -> bool:
        """Compare a term from a proxy, the register, or another primary's ENTRY. Such an ENTRY is never acknowledged.

        Returns:
            True if this term is over. The held output is then never sent.
        """
        self.deposed = self.deposed or term > self.term
        return self.deposed

    # In-sync set

    def tick(self, now: float) -> None:
        """Decide whether the standby is required, and end a planned switch that takes too long."""
        if self._stalled_at is not None and now - self._stalled_at > self._switch:
            self._stalled_at = None
        standby, catch_up = self._standby, self._catch_up
        if standby is None or self.deposed:
            return
        well = self._is_well(standby, now)
        self._rejoin_backoff.look(now, in_sync=standby.id in self.in_sync)
        if standby.id not in self.required:
            if not self.loop:  # An idle server has had no loop yet that the standby could confirm.
                self.loop = self._done = 1
            ready = well and self._is_near(standby) and not self._rejoin_backoff.waits(now)
            if ready and not self.stalled and self._done == self.loop:
                self._require(standby)
        elif catch_up is not None and not catch_up.proposed and not well:
            self._catch_up = None
            self._require_only(self.in_sync)
            self._rejoin_backoff.failed(now)

    def _is_well(self, standby: Progress, now: float) -> bool:
        fit = not (standby.needs_copy or standby.full) and standby.below < BELOW_MAX
        return fit and now - standby.received_at < self._silence

    def _is_near(self, standby: Progress) -> bool:
        return standby.sent == self.end and standby.loop >= max(1, self.loop - NEAR_LOOPS)

    def _require(self, standby: Progress) -> None:
        """Require the standby's acknowledgements from now on. It is proposed when it has everything up to this moment.

        Its earlier confirmations do not count, because its disk may have lost data since.
        """
        self.required.add(standby.id)
        self.loop = self._done = self.loop + 1
        self._catch_up = CatchUp(self.loop)

    def _require_only(self, members: Collection[str]) -> None:
        self.required = set(members) - {self.member}
        if not self.required:
            self._unacknowledged.clear()
            self._unacknowledged_bytes = 0

    def proposal(self, now: float) -> frozenset[str] | None:
        """Return the in-sync set to propose, None for none. It is proposed again until a set is chosen."""
        standby, catch_up = self._standby, self._catch_up
        if standby is None or self.deposed or standby.id not in self.required:
            return None
        if not self._is_well(standby, now):
            return frozenset((self.member,))
        if catch_up is None and not self._unsure:
            return None
        if catch_up is None or catch_up.proposed or standby.loop >= catch_up.since:
            return frozenset((self.member, standby.id))
        return None

    def proposed(self, in_sync: Collection[str]) -> None:
        """Record that this set is being proposed. Until a set is chosen, the outcome is unknown."""
        self._unsure = True
        if self._catch_up is not None and self._standby is not None and self._standby.id in in_sync:
            self._catch_up.proposed = True

    def chosen(self, in_sync: Collection[str]) -> None:
        """Record the set that the register has chosen under this term."""
        self.in_sync, self._catch_up, self._unsure = frozenset(in_sync), None, False
        self._require_only(in_sync)

    def to_copy(self) -> tuple[str, int] | None:
        """Return the member that needs a copy, and its token; None if there is none, or if it is not dropped yet."""
        standby = self._standby
        if standby is None or self.deposed or not standby.needs_copy or standby.id in self.required:
            return None
        return standby.id, standby.token

    # Planned switch

    def switch(self, now: float) -> bool:
        """Begin to hand over: take no more requests. When no output is held, the standby takes over.

        Returns:
            False if there is no standby in sync.
        """
        standby = self._standby
        if standby is None or standby.id not in self.in_sync or self._catch_up is not None:
            return False
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        return True

    @property
    def stalled(self) -> bool:
        """True during a planned switch."""
        return self._stalled_at is not None
