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
PATIENCE_SECONDS = 6.0
"""What an operator waits for the register to say what he waits for."""

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
