"""The primary's side: what a loop says is held until every member that is required has its entry on the disk.

    begin(changes) → an entry, appended to the stream file → outgoing() → the store's commit
        → committed() or taken_back() → hold(answers) → … acknowledged() → released()

Loops are counted. An ENTRY says up to which loop it was computed and which entry was the last one then; the standby's
ACK of that loop says two things at once: it has everything up to that entry, and it knew of no higher term when it said
so. Both are needed, the second also for a loop that changed nothing, or a primary that was replaced without noticing
would go on answering questions. So a held loop waits for one number, whether it has an entry or not.

Which members are required is at least what the register says is in sync. Who joins is required first, then proposed
when it has everything up to that moment; from the proposal on, while its outcome is unknown, it stays required. Who is
silent is dropped only when that was chosen; silent is who does not acknowledge, however loudly it asks.

An entry has the first form of a commit until the standby's FOLLOW says that it reads another one. Until then both
members can go back to a release that reads no other form, since neither stream file has entries of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pubsub.protocol.standby import ENTRIES_MAX, Ack, Entries, EntryId, Follow, join_entries, split_ids
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.standby.replication.progress import Joining, Progress
from pubsub.server.standby.replication.rejoin_backoff import Damping
from pubsub.server.topic.changes import Change

HELD_LOOPS_MAX: Final = 256
"""Loops whose answers wait; beyond it the primary takes no more requests."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of answers that wait, and of entries that a required standby has not acknowledged; the same."""

WINDOW_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of entries that are under way to the standby."""

NEAR_LOOPS: Final = 64
"""Loops that a standby may be behind when it is first required: what is under way, not what it lacks."""

BELOW_MAX: Final = 2
"""So many FOLLOWs in a row that name less than was acknowledged show that the standby's disk went back in time."""


class History(Protocol):
    """The entries that the primary's stream file holds."""

    def holds(self, entry: EntryId) -> bool:
        """Whether an entry is one of the primary's history, and all that follow it are in the file."""

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        """The entries that follow one that the file holds: the first in any case, others up to so many bytes."""


@dataclass(slots=True)
class _Held:
    loop: int
    out: list[Any]
    size: int


class Leading:
    """One term of a primary.

    Args:
        server, store, member: whose messages these are.
        term: chosen by the register.
        in_sync: the members that the register names, this one included.
        end: the last entry of the store.
        history: the stream file.
        now: monotonic seconds.
        silence_seconds: how long a standby may acknowledge nothing before it is to be dropped.
        switch_seconds: how long a planned change may take.

    Attributes:
        end: the last entry.
        loop: how many loops there were in this term.
        in_sync: what was chosen last.
        required: the members whose acknowledgement is waited for, without this one; all that are in sync are.
        deposed: a higher term is known: nothing is answered any more.
        address: where the other member is reached as a server, as its last FOLLOW says.
        stalled: a planned change is under way: no request is taken.
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
        self._joining: Joining | None = None
        self._damping = Damping(silence_seconds)
        self._unsure = self._beat = self._handing = False
        self._stalled_at: float | None = None
        self.deposed, self.address, self._form = False, "", 1

    # Loops

    def begin(self, changes: Sequence[Change]) -> Entry | None:
        """Count a loop, before its commit.

        Args:
            changes: what it commits; none where it only answers.

        Returns:
            Its entry, to be appended to the history before `outgoing`; None where it changes nothing. A term has one
            in any case, so that it is known at both members, whoever starts first.
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
        """The loop's own commit is through."""
        self._done = self.loop
        self._saved = self.end

    def taken_back(self) -> EntryId:
        """The disk was full: the loop's entry has not come to be, and its number is used up.

        Returns:
            The entry that the history ends with now.
        """
        self.end = self._before
        if self._unacknowledged and self._unacknowledged[-1][0] > self.end:
            self._unacknowledged_bytes -= self._unacknowledged.pop()[1]
        standby = self._standby
        if standby is not None:
            standby.durable = min(standby.durable, self.end)
            if standby.sent is not None and standby.sent > self.end:
                standby.go_back(self.end)
        # What the loop answers now was computed after what it asked the standby.
        self.loop = self._done = self.loop + 1
        return self.end

    def hold(self, out: Sequence[Any], size: int) -> None:
        """Keep what the loop says, in order.

        Args:
            out: its answers, announcements and steps of moves.
            size: their bytes.
        """
        if out:
            self._held.append(_Held(self.loop, list(out), size))
            self._held_bytes += size

    def released(self) -> list[Any]:
        """What may be sent now."""
        out: list[Any] = []
        while self._held and not self.deposed and self._held[0].loop <= self._confirmed():
            one = self._held.popleft()
            self._held_bytes -= one.size
            out += one.out
        return out

    def _confirmed(self) -> int:
        """The last loop that is on all disks that are waited for, with the term confirmed since."""
        standby = self._standby
        if standby is not None and standby.id in self.required:
            return min(self._done, standby.loop)
        return self._done

    @property
    def held(self) -> int:
        """How many loops wait."""
        return len(self._held)

    @property
    def full(self) -> bool:
        """Whether no more requests are to be taken."""
        size = max(self._held_bytes, self._unacknowledged_bytes)
        return len(self._held) >= HELD_LOOPS_MAX or size >= HELD_BYTES_MAX

    # To and from the standby

    def beat(self) -> None:
        """A heartbeat is due."""
        self._beat = True

    def outgoing(self) -> list[tuple[Entries, list[Entry]]]:
        """What is to be sent to the standby: ENTRYs, and the entries of each."""
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
        """Whether the standby is to take over now; an ENTRY says so at once, and each heartbeat again."""
        return self.stalled and not self._held and self._done == self.loop

    def _committed(self) -> EntryId:
        """The last entry that is on all disks that are waited for."""
        standby = self._standby
        if standby is not None and standby.id in self.required:
            return min(self._saved, standby.durable)
        return self._saved

    def acknowledged(self, ack: Ack, now: float) -> None:
        """The standby says what it has."""
        standby = self._standby
        if self.heard_of(ack.term) or standby is None or ack.member != standby.id or ack.term != self.term:
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
            standby.heard = now

    def unreachable(self) -> None:
        """The link to the standby has ended: it counts as silent until it acknowledges something."""
        if self._standby is not None:
            self._standby.heard = float("-inf")

    def followed(self, follow: Follow, now: float) -> None:
        """A standby says where it stands.

        Raises:
            DecodeError: its body names no entries.
        """
        ids = split_ids(follow.body)
        if self.heard_of(follow.known) or follow.member == self.member:
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
            standby.below, standby.durable = 0, found  # It begins where it says that it stands.
        if standby.sent is None or follow.gap:
            standby.go_back(found)

    def _standby_named(self, member: str, now: float) -> Progress | None:
        """The standby, where it is this one: a second one is told apart, and waits until the first is given up."""
        standby = self._standby
        if standby is None or standby.id != member:
            heard = now if standby is None else max(standby.heard, standby.followed)
            if standby is not None and (standby.id in self.required or now - heard < self._silence):
                return None
            self._standby, self._damping = Progress(member, now), Damping(self._silence)
        return self._standby

    @property
    def standby(self) -> str:
        """The ID of the other member, as the one that entries are sent to; "" while there is none."""
        return "" if self._standby is None else self._standby.id

    def lag(self, now: float) -> tuple[bool, int, int]:
        """Whether the standby is heard and fit, and how many loops and bytes it has not confirmed."""
        one, size = self._standby, self._unacknowledged_bytes
        return (False, 0, 0) if one is None else (self._is_well(one, now), self.loop - one.loop, size)

    def heard_of(self, term: int) -> bool:
        """A term was heard of: from a proxy, the register, or another primary's ENTRY, which is never acknowledged.

        Returns:
            Whether this term is over: then what is held is never sent.
        """
        self.deposed = self.deposed or term > self.term
        return self.deposed

    # Who is in sync

    def tick(self, now: float) -> None:
        """See who is to be required, and whether a planned change takes too long."""
        if self._stalled_at is not None and now - self._stalled_at > self._switch:
            self._stalled_at = None
        standby, joining = self._standby, self._joining
        if standby is None or self.deposed:
            return
        well = self._is_well(standby, now)
        self._damping.look(now, in_sync=standby.id in self.in_sync)
        if standby.id not in self.required:
            if not self.loop:  # A server that idles has had none yet that could be confirmed.
                self.loop = self._done = 1
            ready = well and self._is_near(standby) and not self._damping.waits(now)
            if ready and not self.stalled and self._done == self.loop:
                self._require(standby)
        elif joining is not None and not joining.proposed and not well:
            self._joining = None
            self._require_only(self.in_sync)
            self._damping.failed(now)

    def _is_well(self, standby: Progress, now: float) -> bool:
        fit = not (standby.needs_copy or standby.full) and standby.below < BELOW_MAX
        return fit and now - standby.heard < self._silence

    def _is_near(self, standby: Progress) -> bool:
        return standby.sent == self.end and standby.loop >= max(1, self.loop - NEAR_LOOPS)

    def _require(self, standby: Progress) -> None:
        """Wait for its acknowledgements from now on; it is proposed when it has all up to this moment.

        What it confirmed before does not count: its disk may have lost that since.
        """
        self.required.add(standby.id)
        self.loop = self._done = self.loop + 1
        self._joining = Joining(self.loop)

    def _require_only(self, members: Collection[str]) -> None:
        self.required = set(members) - {self.member}
        if not self.required:
            self._unacknowledged.clear()
            self._unacknowledged_bytes = 0

    def proposal(self, now: float) -> frozenset[str] | None:
        """The in-sync set that the register is to be asked for, None for none; asked again until one is chosen."""
        standby, joining = self._standby, self._joining
        if standby is None or self.deposed or standby.id not in self.required:
            return None
        if not self._is_well(standby, now):
            return frozenset((self.member,))
        if joining is None and not self._unsure:
            return None
        if joining is None or joining.proposed or standby.loop >= joining.since:
            return frozenset((self.member, standby.id))
        return None

    def proposed(self, in_sync: Collection[str]) -> None:
        """The register has begun to propose this set: until one is chosen, nobody knows whether it is."""
        self._unsure = True
        if self._joining is not None and self._standby is not None and self._standby.id in in_sync:
            self._joining.proposed = True

    def chosen(self, in_sync: Collection[str]) -> None:
        """The register has chosen this set, with this term."""
        self.in_sync, self._joining, self._unsure = frozenset(in_sync), None, False
        self._require_only(in_sync)

    def to_copy(self) -> tuple[str, int] | None:
        """Which member is to be copied, and its token; None while none is, or it is not dropped yet."""
        standby = self._standby
        if standby is None or self.deposed or not standby.needs_copy or standby.id in self.required:
            return None
        return standby.id, standby.token

    # A planned change

    def switch(self, now: float) -> bool:
        """Begin to hand over: take no request, and when nothing is held, have the standby take over.

        Returns:
            Whether there is a standby in sync.
        """
        standby = self._standby
        if standby is None or standby.id not in self.in_sync or self._joining is not None:
            return False
        self._stalled_at = now if self._stalled_at is None else self._stalled_at
        return True

    @property
    def stalled(self) -> bool:
        """Whether a planned change is under way."""
        return self._stalled_at is not None
