"""What strikes a server of two members, what operators do to it, and what must be so of it in the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pubsub.protocol import Operate
from pubsub.protocol.register import View
from tests.simulation import memory
from tests.simulation.members import MemberNode, Paired
from tests.simulation.nodes import ProxyNode

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

LOOK_SECONDS = 0.3
MOMENT_SECONDS = 0.0005
MOMENTS_MAX = 4_000
"""Looks for a moment to strike at, and the time between two of them."""

PATIENCE_SECONDS = 6.0
"""What an operator waits for the register to say what he waits for."""

NEAR_ENTRIES = 3
"""So many fewer a standby has that is caught up: the primary makes others meanwhile."""

SHOWN_MAX = 2
LOCAL = ("note", "quarantine", "repaired", "sqlite_stat1", "sqlite_stat4")
"""Tables of which two members need not have the same."""


class Pairs:
    """Faults and operators of the pairs of one run."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.world, self.random = simulation.world, simulation.random
        self._copies: dict[str, dict[str, bytes]] = {}
        self._held: set[str] = set()
        """Members that an operator keeps down at present."""

    def _one(self) -> Paired:
        return self.random.choice(self.simulation.pairs)

    # Faults

    def kill_primary(self) -> None:
        """Who serves is killed, maybe after a while in which the other one did not hear it, and maybe for long."""
        pair = self._one()
        node, seconds = pair.active, 0.0
        if self.random.random() < 0.5:
            seconds = 0.3 * self.random.random()
            self.world.network.cut(node.name, pair.other(node).name, seconds + 0.1)
        self.world.after(seconds, self._kill, node, self.random.choice((0.0, 1.5, 3.0)))

    def _kill(self, node: MemberNode, away: float) -> None:
        if self.simulation.over or node.restarting:
            return
        node.end("killed")
        if away:
            node.restarting = True
            self.world.after(away * (0.5 + self.random.random()), self.simulation._start, node)
        else:
            self.simulation.restart(node)

    def pause_primary(self) -> None:
        """Who serves is paused for longer than anybody's patience, or a little less."""
        self._one().active.pause(self.random.choice((0.5, 1.5, 4.0)) * self.random.random())

    def part_members(self) -> None:
        """The two do not hear each other; proxies hear both."""
        one, other = (member.name for member in self._one().members)
        seconds = self.random.choice((0.5, 2.0, 5.0)) * self.random.random()
        self.world.note(f"{one} and {other} are cut for {seconds:.2f}")
        self.world.network.cut(one, other, seconds)
        self.world.network.cut(other, one, seconds)

    def one_way_members(self) -> None:
        """One does not hear the other."""
        one, other = self.random.sample([member.name for member in self._one().members], 2)
        self.world.network.cut(one, other, self.random.choice((0.5, 2.0, 5.0)) * self.random.random())

    def both(self) -> None:
        """Both are killed, or both hosts lose power, and come back one after the other."""
        pair = self._one()
        power = self.random.random() < 0.5
        for member in pair.members:
            if power:
                self.simulation._cut_power(member)
            else:
                member.end("killed")
            self.simulation.restart(member)

    def voters(self) -> None:
        """Some proxies are started anew, or all."""
        voters = self._voters()
        for proxy in self.random.sample(voters, self.random.randrange(1, len(voters) + 1)):
            self.world.after(0.1 * self.random.random(), self.simulation._kill_now, proxy)

    # Faults that wait for their moment

    def part_joiner(self) -> None:
        """A standby that comes back hears nothing any more as soon as it has what it lacked, and says so late.

        What is answered until its primary hears of that, it lacks. Who serves dies when that one is in sync.
        """
        pair = self._one()
        primary, standby = pair.active, pair.other(pair.active)
        if not primary.serves or not standby.alive or standby.restarting or standby.name in self._held:
            return
        standby.end("killed")
        standby.restarting = True
        self.world.after(1.0 + self.random.random(), self._rejoin, primary, standby)

    def _rejoin(self, primary: MemberNode, standby: MemberNode) -> None:
        self.world.network.clog(standby.name, primary.name, 1.0, 0.2)
        self.simulation._start(standby)
        self._until_caught_up(primary, standby, standby.host.monotonic(), MOMENTS_MAX)

    def _until_caught_up(self, primary: MemberNode, standby: MemberNode, since: float, looks: int) -> None:
        following = None if standby.pair is None else standby.pair.member.following
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.simulation.over or leading is None or following is None or not looks:
            return
        (term, number), end = following.durable, leading.end
        if following.heard <= since or term != end.term or number < end.number - NEAR_ENTRIES:
            self.world.after(MOMENT_SECONDS, self._until_caught_up, primary, standby, since, looks - 1)
            return
        self.world.network.cut(primary.name, standby.name, 1.0)
        self._until_in_sync(primary, standby, self.world.now + 0.5)

    def _until_in_sync(self, primary: MemberNode, standby: MemberNode, end: float) -> None:
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.simulation.over or leading is None or self.world.now > end:
            return
        if self.id_of(standby) not in leading.in_sync:
            self.world.after(MOMENT_SECONDS, self._until_in_sync, primary, standby, end)
            return
        self._kill(primary, 3.0)

    def hold_accepts(self) -> None:
        """The two do not hear each other, and what the primary has the proxies accept then is long on its way."""
        pair = self._one()
        primary, standby = pair.active, pair.other(pair.active)
        for one, other in ((primary, standby), (standby, primary)):
            self.world.network.cut(one.name, other.name, 2.0)
        self._until_prepared(primary, MOMENTS_MAX)

    def _until_prepared(self, primary: MemberNode, looks: int) -> None:
        if self.simulation.over or primary.pair is None or not looks:
            return
        attempt = primary.pair.member.proposer.attempt
        if attempt is None or attempt.kind != "drop" or attempt.view is not None:
            self.world.after(MOMENT_SECONDS, self._until_prepared, primary, looks - 1)
            return
        self.world.note(f"what {primary.name} says to proxies is long on its way")
        for proxy in self._voters():
            self.world.network.clog(primary.name, proxy.name, 0.5, 0.5)

    def lose_voter(self) -> None:
        """Of three proxies one misses that the standby was dropped, one loses that, one is down. Who serves dies."""
        pair, voters = self._one(), self._voters()
        primary, standby = pair.active, pair.other(pair.active)
        if len(voters) != 3 or not all(proxy.alive for proxy in voters):
            return
        late, loser, away = self.random.sample(voters, 3)
        for one, other in ((primary, standby), (standby, primary), (primary, late), (late, primary)):
            self.world.network.cut(one.name, other.name, 2.0)
        self._until_alone(primary, loser, away, MOMENTS_MAX)

    def _until_alone(self, primary: MemberNode, loser: ProxyNode, away: ProxyNode, looks: int) -> None:
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.simulation.over or leading is None or not looks:
            return
        if leading.in_sync == {self.id_of(primary)}:
            self.world.after(0.2 * self.random.random(), self._lose, primary, loser, away)
        else:
            self.world.after(MOMENT_SECONDS, self._until_alone, primary, loser, away, looks - 1)

    def _lose(self, primary: MemberNode, loser: ProxyNode, away: ProxyNode) -> None:
        ready = loser.alive and away.alive and not (loser.restarting or away.restarting or primary.restarting)
        may = self.may_lose(loser) and self.simulation.operators.remembered_without(loser)
        if self.simulation.over or not ready or not may:
            return
        self.world.note(f"{loser.name} loses its directory while {away.name} is away")
        for proxy, seconds in ((loser, 0.01), (away, 3.0)):
            proxy.end("killed")
            proxy.restarting = True
            self.world.after(seconds, self.simulation._start, proxy)
        loser.host.disk.restore({})
        self._kill(primary, 3.0)

    # Operators

    def switch(self) -> None:
        """A planned change."""
        pair = self._one()
        self.world.note(f"{pair.name} is to switch")
        self.simulation.operators._through(pair, Operate("op", pair.name, "switch"))

    def old_copy(self) -> None:
        """A member's disk is copied; or, when it is not in sync any more, replaced by the copy."""
        pair = self._one()
        member = self.random.choice(pair.members)
        if not member.alive or member.restarting or member.name in self._held or not self._is_registered(member):
            return
        member.end("killed")
        copy = self._copies.pop(member.name, None)
        if copy is None:
            self._copies[member.name] = member.host.disk.copy()
            self.world.note(f"{member.name} is copied")
            self.simulation.restart(member)
            return
        self._held.add(member.name)
        member.restarting = True
        self._until_out(pair, member, copy, self.world.now + PATIENCE_SECONDS)

    def _until_out(self, pair: Paired, member: MemberNode, copy: dict[str, bytes], deadline: float) -> None:
        if member.alive:  # All was started for the settling: nobody puts files under a running process.
            self._held.discard(member.name)
            return
        view = self.settled_view(pair)
        out = view is not None and self.id_of(member) not in view.in_sync
        if not out and self.world.now < deadline and not self.simulation.over:
            self.world.after(LOOK_SECONDS, self._until_out, pair, member, copy, deadline)
            return
        if out:
            self.world.note(f"{member.name} is put back to a copy")
            self.simulation.counters["members put back"] = self.simulation.counters.get("members put back", 0) + 1
            self.simulation._space(member.host.disk)
            member.host.disk.restore(copy)
        self._release(member)

    def _release(self, member: MemberNode) -> None:
        self._held.discard(member.name)
        member.restarting = False
        self.simulation.restart(member)

    def replace(self) -> None:
        """A member's host is gone for good, and another one takes its place."""
        pair = self._one()
        member = self.random.choice(pair.members)
        other, view = pair.other(member), self.settled_view(pair)
        ready = other.alive and not other.paused and other.name not in self._held and member.name not in self._held
        if member.restarting or not ready or view is None or self.id_of(other) not in view.in_sync:
            return
        if {self.id_of(one) for one in pair.members} != set(view.members) or not self._are_idle(pair):
            return
        gone = self.id_of(member)
        member.end("killed")
        self.world.note(f"{member.name}, member {gone}, is lost for good")
        self.simulation.counters["members replaced"] = self.simulation.counters.get("members replaced", 0) + 1
        self.simulation._space(member.host.disk)
        member.host.disk.restore({})
        member.join(other.address)
        self._copies.pop(member.name, None)
        self._held.add(member.name)
        member.restarting = True
        self._until_removed(pair, member, gone)

    def _until_removed(self, pair: Paired, member: MemberNode, gone: str) -> None:
        rows = [proxy.core.members.registers.rows.get(pair.store_id()) for proxy in self._voters() if proxy.alive]
        views = [row.view for row in rows if row is not None and row.view is not None]
        if len(views) == len(self._voters()) and not any(gone in view.members for view in views):
            self.world.note(f"member {gone} of {pair.name} is removed")
            self._release(member)
            return
        self.simulation.operators._through(pair, Operate("op", pair.name, "remove", member=gone))
        self.world.after(LOOK_SECONDS, self._until_removed, pair, member, gone)

    # What is so

    @staticmethod
    def id_of(member: MemberNode) -> str:
        """A member's ID; "" while it has none."""
        local = member.process._local.local if hasattr(member, "process") else None
        return "" if local is None else local.member

    @staticmethod
    def _is_registered(member: MemberNode) -> bool:
        """Whether it knows that its store has a register; an older copy of it would serve without one."""
        local = member.process._local.local
        return local is not None and local.registered

    def _voters(self) -> list[ProxyNode]:
        return [*self.simulation.proxies, *self.simulation.witnesses]

    def _are_idle(self, pair: Paired) -> bool:
        """Whether no member asks the register for anything."""
        return all(member.pair is None or member.pair.member.proposer.attempt is None for member in pair.members)

    def settled_view(self, pair: Paired) -> View | None:
        """What all proxies say alike, with nothing under way to them; None where they do not."""
        store = pair.store_id()
        rows = [proxy.core.members.registers.rows.get(store) if proxy.alive else None for proxy in self._voters()]
        first = rows[0]
        if first is None or any(row != first for row in rows) or first.promised != first.ballot:
            return None
        return first.view

    def may_lose(self, proxy: ProxyNode) -> bool:
        """Whether a proxy may lose its data: enough others can tell what it had promised, and are a majority.

        Of two proxies the other one can tell, but only to a primary that lives until then: else an operator has to
        promote a member, which nobody does here.
        """
        voters = self._voters()
        needed = max(len(voters) - (len(voters) // 2 + 1) + 1, len(voters) // 2 + 1)
        for pair in self.simulation.pairs:
            others = [one for one in voters if one is not proxy and one.alive]
            if sum(pair.store_id() in one.core.members.registers.rows for one in others) < needed:
                return False
        return True

    def open_end(self) -> str:
        """What has not settled, "" where all has."""
        for pair in self.simulation.pairs:
            serving = [member for member in pair.members if member.serves]
            if len(serving) != 1:
                return f"{len(serving)} members of {pair.name} serve"
            primary, standby = serving[0], pair.other(serving[0])
            leading = None if primary.pair is None else primary.pair.member.leading
            if leading is None:
                return f"{pair.name} has no register"
            if leading.in_sync != {self.id_of(primary), self.id_of(standby)}:
                return f"{pair.name} has {sorted(leading.in_sync)} in sync"
            disk = None if standby.pair is None else standby.pair.disk
            if disk is None or disk.store is None or disk.end != leading.end:
                return f"{standby.name} has not all of {primary.name}"
        return ""

    def differences(self) -> Iterator[str]:
        """What is otherwise in the stores of two members, when all has settled, or in the memory of who serves."""
        damaged = bool(self.simulation.history.damaged)
        for pair in self.simulation.pairs:
            if pair.alive and not damaged:
                yield from memory.check(pair.active, pair.other(pair.active))
            one, other = ((member.name, contents(member)) for member in pair.members)
            yield from _differences(pair.name, one, other, damaged)


def contents(member: MemberNode) -> dict[str, list[Any]]:
    """All rows of a member's store, by table."""
    disk = None if member.pair is None else member.pair.disk
    store = disk.store if disk is not None else member.group_commit.store
    if store is None:
        return {}
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table'")]
    return {
        name: sorted(map(repr, store.db.execute(f"select * from {name}")))
        for name in sorted(tables)
        if name not in LOCAL
    }


def _differences(
    server: str, one: tuple[str, dict[str, list[Any]]], other: tuple[str, dict[str, list[Any]]], damaged: bool
) -> Iterator[str]:
    for table in sorted(one[1].keys() | other[1].keys()):
        if damaged and table == "batch":
            continue
        rows, others = set(one[1].get(table, [])), set(other[1].get(table, []))
        for name, more in ((one[0], rows - others), (other[0], others - rows)):
            for row in sorted(more)[:SHOWN_MAX]:
                yield f"{server}: only {name} has {row:.160} in its table {table}"
