"""Faults of the two members of a server, and the acts of operators on them."""

from __future__ import annotations

from pubsub.protocol import Operate
from tests.simulation.cast import Cast
from tests.simulation.faults.kinds import Fault
from tests.simulation.faults.operators import Operators
from tests.simulation.members import MemberNode, Paired
from tests.simulation.nodes import ProxyNode
from tests.simulation.pairs import Pairs
from tests.simulation.supervisor import Supervisor

LOOK_SECONDS = 0.3
MOMENT_SECONDS = 0.0005
MOMENTS_MAX = 4_000
"""Number of looks for a moment, and the time between two looks."""

PATIENCE_SECONDS = 6.0
"""Seconds that an operator waits for a state of the register."""

NEAR_ENTRIES = 3
"""So many fewer a standby has that is caught up: the primary makes others meanwhile."""


class Members:
    """Faults and operators of the pairs of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor, operators: Operators, pairs: Pairs) -> None:
        self.cast, self.supervisor, self.operators, self.pairs = cast, supervisor, operators, pairs
        self.world, self.random = cast.world, cast.random
        self._copies: dict[str, dict[str, bytes]] = {}
        self._held: set[str] = set()
        """Members that an operator keeps down at present."""

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "kill primary": self.kill_primary,
            "pause primary": self.pause_primary,
            "part members": self.part_members,
            "one way members": self.one_way_members,
            "both": self.both,
            "voters": self.voters,
            "part joiner": self.part_joiner,
            "hold accepts": self.hold_accepts,
            "lose voter": self.lose_voter,
            "switch": self.switch,
            "old copy": self.old_copy,
            "replace": self.replace,
        }

    def _one(self) -> Paired:
        return self.random.choice(self.cast.pairs)

    # Faults

    def kill_primary(self) -> None:
        """The primary is killed, maybe after a time in which the other member did not hear it, and maybe for long."""
        pair = self._one()
        node, seconds = pair.active, 0.0
        if self.random.random() < 0.5:
            seconds = 0.3 * self.random.random()
            self.world.network.cut(node.name, pair.other(node).name, seconds + 0.1)
        self.world.after(seconds, self._kill, node, self.random.choice((0.0, 1.5, 3.0)))

    def _kill(self, node: MemberNode, away: float) -> None:
        if self.world.over or node.restarting:
            return
        if away:
            self.supervisor.kill_for(node, away * (0.5 + self.random.random()))
        else:
            node.end("killed")
            self.supervisor.restart(node)

    def pause_primary(self) -> None:
        """The primary is paused for longer than every patience, or a little less."""
        self._one().active.pause(self.random.choice((0.5, 1.5, 4.0)) * self.random.random())

    def part_members(self) -> None:
        """The two members do not hear each other; proxies hear both."""
        one, other = (member.name for member in self._one().members)
        seconds = self.random.choice((0.5, 2.0, 5.0)) * self.random.random()
        self.world.network.part(one, other, seconds)

    def one_way_members(self) -> None:
        """One member does not hear the other."""
        one, other = self.random.sample([member.name for member in self._one().members], 2)
        self.world.network.cut(one, other, self.random.choice((0.5, 2.0, 5.0)) * self.random.random())

    def both(self) -> None:
        """Both are killed, or both hosts lose power, and come back one after the other."""
        pair = self._one()
        power = self.random.random() < 0.5
        for member in pair.members:
            if power:
                member.lose_power()
            else:
                member.end("killed")
            self.supervisor.restart(member)

    def voters(self) -> None:
        """Some proxies are started anew, or all."""
        voters = self.cast.voters
        for proxy in self.random.sample(voters, self.random.randrange(1, len(voters) + 1)):
            self.world.after(0.1 * self.random.random(), self.supervisor.kill, proxy)

    # Faults that wait for their moment

    def part_joiner(self) -> None:
        """A returning standby loses its incoming link as soon as it has caught up, and reports that late.

        It lacks the answers from before its primary learns of that. The primary dies when the standby is in sync.
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
        self.supervisor.start(standby)
        self._until_caught_up(primary, standby, standby.host.monotonic(), MOMENTS_MAX)

    def _until_caught_up(self, primary: MemberNode, standby: MemberNode, since: float, looks: int) -> None:
        following = None if standby.pair is None else standby.pair.member.following
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.world.over or leading is None or following is None or not looks:
            return
        (term, number), end = following.durable, leading.end
        if following.received_at <= since or term != end.term or number < end.number - NEAR_ENTRIES:
            self.world.after(MOMENT_SECONDS, self._until_caught_up, primary, standby, since, looks - 1)
            return
        self.world.network.cut(primary.name, standby.name, 1.0)
        self._until_in_sync(primary, standby, self.world.now + 0.5)

    def _until_in_sync(self, primary: MemberNode, standby: MemberNode, end: float) -> None:
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.world.over or leading is None or self.world.now > end:
            return
        if self.pairs.id_of(standby) not in leading.in_sync:
            self.world.after(MOMENT_SECONDS, self._until_in_sync, primary, standby, end)
            return
        self._kill(primary, 3.0)

    def hold_accepts(self) -> None:
        """The two members do not hear each other, and the accept messages of the primary to the proxies arrive late."""
        pair = self._one()
        primary, standby = pair.active, pair.other(pair.active)
        for one, other in ((primary, standby), (standby, primary)):
            self.world.network.cut(one.name, other.name, 2.0)
        self._until_prepared(primary, MOMENTS_MAX)

    def _until_prepared(self, primary: MemberNode, looks: int) -> None:
        if self.world.over or primary.pair is None or not looks:
            return
        attempt = primary.pair.member.proposer.attempt
        if attempt is None or attempt.kind != "remove_from_sync" or attempt.view is not None:
            self.world.after(MOMENT_SECONDS, self._until_prepared, primary, looks - 1)
            return
        self.world.note(f"what {primary.name} says to proxies is long on its way")
        for proxy in self.cast.voters:
            self.world.network.clog(primary.name, proxy.name, 0.5, 0.5)

    def lose_voter(self) -> None:
        """One of three proxies misses the drop of the standby, one loses that data, and one is down.

        The primary dies.
        """
        pair, voters = self._one(), self.cast.voters
        primary, standby = pair.active, pair.other(pair.active)
        if len(voters) != 3 or not all(proxy.alive for proxy in voters):
            return
        late, loser, away = self.random.sample(voters, 3)
        for one, other in ((primary, standby), (standby, primary), (primary, late), (late, primary)):
            self.world.network.cut(one.name, other.name, 2.0)
        self._until_alone(primary, loser, away, MOMENTS_MAX)

    def _until_alone(self, primary: MemberNode, loser: ProxyNode, away: ProxyNode, looks: int) -> None:
        leading = None if primary.pair is None else primary.pair.member.leading
        if self.world.over or leading is None or not looks:
            return
        if leading.in_sync == {self.pairs.id_of(primary)}:
            self.world.after(0.2 * self.random.random(), self._lose, primary, loser, away)
        else:
            self.world.after(MOMENT_SECONDS, self._until_alone, primary, loser, away, looks - 1)

    def _lose(self, primary: MemberNode, loser: ProxyNode, away: ProxyNode) -> None:
        ready = loser.alive and away.alive and not (loser.restarting or away.restarting or primary.restarting)
        may = self.pairs.may_lose(loser) and self.operators.remembered_without(loser)
        if self.world.over or not ready or not may:
            return
        self.world.note(f"{loser.name} loses its directory while {away.name} is away")
        for proxy, seconds in ((loser, 0.01), (away, 3.0)):
            self.supervisor.kill_for(proxy, seconds)
        loser.host.disk.restore({})
        self._kill(primary, 3.0)

    # Operators

    def switch(self) -> None:
        """A planned change."""
        pair = self._one()
        self.world.note(f"{pair.name} is to switch")
        self.operators.through(pair, Operate("op", pair.name, "switch"))

    def old_copy(self) -> None:
        """A member's disk is copied; or, when it is not in sync any more, replaced by the copy."""
        pair = self._one()
        member = self.random.choice(pair.members)
        if not member.alive or member.restarting or member.name in self._held or not self.pairs.is_registered(member):
            return
        member.end("killed")
        copy = self._copies.pop(member.name, None)
        if copy is None:
            self._copies[member.name] = member.host.disk.copy()
            self.world.note(f"{member.name} is copied")
            self.supervisor.restart(member)
            return
        self._held.add(member.name)
        member.restarting = True
        self._until_out(pair, member, copy, self.world.now + PATIENCE_SECONDS)

    def _until_out(self, pair: Paired, member: MemberNode, copy: dict[str, bytes], deadline: float) -> None:
        if member.alive:  # All processes were started for the settling: no operator puts files under a running process.
            self._held.discard(member.name)
            return
        view = self.pairs.settled_view(pair)
        out = view is not None and self.pairs.id_of(member) not in view.in_sync
        if not out and self.world.now < deadline and not self.world.over:
            self.world.after(LOOK_SECONDS, self._until_out, pair, member, copy, deadline)
            return
        if out:
            self.world.note(f"{member.name} is put back to a copy")
            self.cast.counters["members put back"] += 1
            member.host.disk.make_room()
            member.host.disk.restore(copy)
        self._release(member)

    def _release(self, member: MemberNode) -> None:
        self._held.discard(member.name)
        member.restarting = False
        self.supervisor.restart(member)

    def replace(self) -> None:
        """A member's host is gone for good, and another one takes its place."""
        pair = self._one()
        member = self.random.choice(pair.members)
        other, view = pair.other(member), self.pairs.settled_view(pair)
        ready = other.alive and not other.paused and other.name not in self._held and member.name not in self._held
        if member.restarting or not ready or view is None or self.pairs.id_of(other) not in view.in_sync:
            return
        if {self.pairs.id_of(one) for one in pair.members} != set(view.members) or not self.pairs.are_idle(pair):
            return
        gone = self.pairs.id_of(member)
        member.end("killed")
        self.world.note(f"{member.name}, member {gone}, is lost for good")
        self.cast.counters["members replaced"] += 1
        member.host.disk.make_room()
        member.host.disk.restore({})
        member.join(other.address)
        self._copies.pop(member.name, None)
        self._held.add(member.name)
        member.restarting = True
        self._until_removed(pair, member, gone)

    def _until_removed(self, pair: Paired, member: MemberNode, gone: str) -> None:
        rows = [proxy.core.members.registers.rows.get(pair.store_id()) for proxy in self.cast.voters if proxy.alive]
        views = [row.view for row in rows if row is not None and row.view is not None]
        if len(views) == len(self.cast.voters) and not any(gone in view.members for view in views):
            self.world.note(f"member {gone} of {pair.name} is removed")
            self._release(member)
            return
        self.operators.through(pair, Operate("op", pair.name, "remove", member=gone))
        self.world.after(LOOK_SECONDS, self._until_removed, pair, member, gone)
