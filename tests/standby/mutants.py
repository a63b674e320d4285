"""Each rule of replication left out: the cores without it."""

from __future__ import annotations

from typing import Any

from pubsub.protocol.standby import ROOT, Entries, EntryId, Follow, join_ids
from pubsub.server.standby.replication.entries import Entry
from pubsub.server.standby.replication.follower import Following, _Copying
from pubsub.server.standby.replication.primary import CatchUp, Leading
from tests.standby.pair import World

RULES = {
    "hold": "what a loop says leaves only when every required member has its entry on the disk",
    "own": "... and when the primary's own commit is through",
    "fsync": "the standby acknowledges after its fsync",
    "fence": "a loop that changed nothing waits until the standby has confirmed the term since",
    "previous": "an entry is attached to the one that it names",
    "late": "an entry below the end that the standby has is ignored",
    "unapplied": "the standby applies only what is committed on all required members",
    "join_first": "who joins is required before it is proposed",
    "join_all": "... and proposed when it has everything up to that moment",
    "unsure": "while a proposal's outcome is unknown, who was proposed stays required",
    "chosen": "the primary goes on without a silent standby only when that was chosen",
    "progress": "silent is who does not acknowledge, however loudly it asks",
    "copy_whole": "a member whose store is no beginning of the primary's is copied, not appended to",
    "nonce": "a copy counts only as the answer to the latest request for one",
    "old_term": "a member follows nothing below the highest term it knows",
}


class NoHold(Leading):
    def _confirmed(self) -> int:
        return self._done


class NoOwn(Leading):
    def _confirmed(self) -> int:
        standby = self._standby
        return standby.loop if standby is not None and standby.id in self.required else self.loop


class NoFence(Leading):
    """A loop without a change waits for the earlier changes, and for nothing else."""

    def released(self) -> list[Any]:
        out = super().released()
        standby = self._standby
        while self._held and not self.deposed and self._held[0].loop <= self._done:
            if standby is not None and standby.id in self.required and standby.durable < self._held[0].out[0][1]:
                break
            out += self._held.popleft().out
        return out


class NoPrevious(Following):
    def _attached_to(self, entry: Entry) -> int | None:
        return self._next - 1


class NoLate(Following):
    def _is_late(self, entry: Entry) -> bool:
        return entry.id in self._places


class NoUnapplied(Following):
    def to_apply(self) -> list[Entry]:
        self._committed = self._durable
        return super().to_apply()


class NoJoinFirst(Leading):
    def _require(self, standby: Any) -> None:
        self._catch_up = CatchUp(0, proposed=True)

    def proposal(self, now: float) -> frozenset[str] | None:
        standby = self._standby
        if standby is not None and self._catch_up is not None and standby.id not in self.required:
            return frozenset((self.member, standby.id)) if self._is_well(standby, now) else None
        return super().proposal(now)


class NoJoinAll(Leading):
    def _is_near(self, standby: Any) -> bool:
        return True

    def _require(self, standby: Any) -> None:
        self.required.add(standby.id)
        self._catch_up = CatchUp(0, proposed=True)


class NoChosen(Leading):
    def tick(self, now: float) -> None:
        super().tick(now)
        standby = self._standby
        if standby is not None and standby.id in self.required and not self._is_well(standby, now):
            self._require_only(())


class NoCopyWhole(Following):
    """It names all its earlier entries, and appends any entry that follows one of them."""

    past: tuple[EntryId, ...] = ()

    def applied_to(self, entry: EntryId) -> None:
        super().applied_to(entry)

    def follow(self, *, gap: bool = False) -> Follow:
        follow = super().follow(gap=gap)
        follow.body = join_ids([ROOT, *(one for one in self._all())][-900:])
        return follow

    def _all(self) -> list[EntryId]:
        return [EntryId(*one) for one in sorted({*self.history(), *self._places})]

    def history(self) -> list[EntryId]:
        return [entry.id for entry in self.member_store()]

    def member_store(self) -> list[Entry]:
        return NoCopyWhole.world.members[self._names[2]].store

    world: World

    def _attached_to(self, entry: Entry) -> int | None:
        place = super()._attached_to(entry)
        if place is None and entry.previous in {ROOT, *self.history()}:
            return self._next - 1
        return place


class NoNonce(Following):
    def begin_copy(self, term: int, token: int, snapshot: EntryId) -> bool:
        if term < self.floor:
            return False
        self._copying = _Copying(snapshot, token)
        return True

    def copied(self, token: int) -> bool:
        self._token = token
        return super().copied(token)


class NoOldTerm(Following):
    @property
    def floor(self) -> int:
        return self._term

    def entries(self, message: Entries, entries: Any, now: float) -> None:
        self._term = message.term
        super().entries(message, entries, now)


class NoOldTermLeading(Leading):
    def learn_term(self, term: int) -> bool:
        return self.deposed


LEADING: dict[str, type[Leading]] = {
    "hold": NoHold,
    "own": NoOwn,
    "fence": NoFence,
    "join_first": NoJoinFirst,
    "join_all": NoJoinAll,
    "chosen": NoChosen,
    "old_term": NoOldTermLeading,
}
FOLLOWING: dict[str, type[Following]] = {
    "previous": NoPrevious,
    "late": NoLate,
    "unapplied": NoUnapplied,
    "copy_whole": NoCopyWhole,
    "nonce": NoNonce,
    "old_term": NoOldTerm,
}


def run(seed: int, left_out: str = "", trace: bool = False) -> World:
    """One run, with all rules or without one."""
    rules = {rule: rule != left_out for rule in RULES}
    world = World(seed, rules, LEADING.get(left_out, Leading), FOLLOWING.get(left_out, Following), trace)
    NoCopyWhole.world = world
    return world.run()
