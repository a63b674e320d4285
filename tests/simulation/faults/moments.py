"""Faults at moments that chance hardly ever meets: within a move, within a close, at a start on a full disk.

Each was added because a fault of ours that was found by reading needed it (docs/reference/history-of-faults.md). Which
runs have which is drawn apart from all else (`fate.moments`), and each moment that came about is counted.
"""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.clients import ClientNode
from tests.simulation.faults.kinds import Fault
from tests.simulation.faults.operators import Operators
from tests.simulation.members import MemberNode, Paired, Server
from tests.simulation.nodes import ProxyNode, ServerNode
from tests.simulation.supervisor import Supervisor

LOOK_SECONDS = 0.002
LOOKS_MAX = 500
"""Number of looks for a moment; a fault without a moment within them did not happen."""

AWAY_SECONDS = 3.0
"""How long a member is away: its other one serves by then."""


class Moments:
    """The faults of one run that wait for their moment."""

    def __init__(self, cast: Cast, supervisor: Supervisor, operators: Operators) -> None:
        self.cast, self.supervisor, self.operators = cast, supervisor, operators
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "full start": self.full_start,
            "turn receiver": self.turn_receiver,
            "kill maker": self.kill_maker,
            "unheard": self.unheard,
            "one witness": self.one_witness,
            "close midway": self.close_midway,
            "reopen": self.reopen,
            "cancel": self.cancel,
        }

    # Disks

    def full_start(self) -> None:
        """A server, or a standby with a store, is killed while its disk is full, and started before there is room."""
        server = self.cast.any_server()
        disk = server.host.disk
        if not server.alive or server.restarting or not (disk.reserved or self._follows(server)):
            return
        disk.full = True
        self.world.after(0.3 * self.random.random(), self._kill_full, server, server.life)

    @staticmethod
    def _follows(server: ServerNode) -> bool:
        """Whether it is a standby that has a store; it has no reserve, and need not write to start."""
        if not isinstance(server, MemberNode) or server.serves:
            return False
        return server.pair is not None and server.pair.disk.store is not None

    def _kill_full(self, server: ServerNode, life: int) -> None:
        if self.world.over or not server.alive or server.life != life or not server.host.disk.full:
            return
        server.end("killed")
        server.restarting = True
        self.world.after(0.2 * self.random.random(), self._start_full, server)

    def _start_full(self, server: ServerNode) -> None:
        if server.host.disk.full:
            self.cast.counters["servers started on a full disk"] += 1
        self.supervisor.start(server)
        self.world.after(1.0 + self.random.random(), server.host.disk.make_room)

    # Moves

    def turn_receiver(self) -> None:
        """The primary to which a topic is on its way dies when the topic is frozen for it, and is away for long."""
        pairs = [pair for pair in self.cast.pairs if pair.alive and not pair.restarting]
        givers = [one for one in self.cast.servers if one.alive and one.core.state.topics]
        if not pairs:
            return
        pair = self.random.choice(pairs)
        givers = [giver for giver in givers if giver is not pair]
        if not givers:
            return
        giver = self.random.choice(givers)
        topic = self.random.choice(sorted(giver.core.state.topics))
        heard = [proxy for proxy in self.cast.proxies if proxy.alive and not proxy.paused]
        if heard:
            self.operators.move(self.random.choice(heard), giver, pair, topic)
            self._until_frozen(giver, pair, pair.active, topic, LOOKS_MAX)

    def _until_frozen(self, giver: Server, pair: Paired, primary: MemberNode, topic: str, looks: int) -> None:
        if self.world.over or not giver.alive or not primary.alive or not looks:
            return
        held = giver.core.state.topics.get(topic)
        if held is None or held.frozen != primary.address:
            self.world.after(LOOK_SECONDS, self._until_frozen, giver, pair, primary, topic, looks - 1)
            return
        self.cast.counters["receivers killed while a topic was frozen for them"] += 1
        self.world.note(f"{topic} is frozen at {giver.name} for {primary.name}, which dies")
        self.supervisor.kill_for(primary, AWAY_SECONDS * (0.5 + self.random.random()))
        self._until_turned(giver, pair, primary, topic, self.world.now + 2 * AWAY_SECONDS)

    def _until_turned(self, giver: Server, pair: Paired, primary: MemberNode, topic: str, end: float) -> None:
        if self.world.now > end or self.world.over:
            return
        held = giver.core.state.topics.get(topic) if giver.alive else None
        if pair.other(primary).serves and held is not None and held.frozen == primary.address:
            self.cast.counters["topics frozen for a member whose other one serves"] += 1
            return
        self.world.after(0.1, self._until_turned, giver, pair, primary, topic, end)

    # Topics that are begun

    def kill_maker(self) -> None:
        """A server that was assigned a new topic dies once it has made it, before any proxy knows of it."""
        self._until_given(LOOKS_MAX)

    def _given(self) -> list[tuple[str, ServerNode]]:
        """Topics that were given to servers of one member just now, each with its server."""
        given = [
            (topic, self.cast.server(assignment.server.id))
            for proxy in self.cast.proxies
            if proxy.alive
            for topic, assignment in sorted(proxy.core.table.assignments.tentative.items())
        ]
        return [
            (topic, server)
            for topic, server in given
            if isinstance(server, ServerNode) and server.alive and not server.restarting
        ]

    def _until_given(self, looks: int) -> None:
        if self.world.over or not looks:
            return
        for topic, server in self._given():
            server.kill_at_step = self.random.choice(("after commit", "while sending"))
            server.restarting = True
            self.cast.counters["servers killed as they made a topic"] += 1
            self.world.note(f"{server.name} is to die as it makes {topic}")
            self.world.after(1.0 + 2.0 * self.random.random(), self._back, server)
            return
        self.world.after(LOOK_SECONDS, self._until_given, looks - 1)

    def _back(self, server: ServerNode) -> None:
        server.kill_at_step = ""
        self.supervisor.start(server)

    def unheard(self) -> None:
        """A server's announcement of a new topic is lost; soon the server is away for long, and proxies die."""
        self._until_begun(LOOKS_MAX)

    def _until_begun(self, looks: int) -> None:
        if self.world.over or not looks:
            return
        for topic, server in self._given():
            self.world.note(f"what {server.name} says of {topic} gets lost")
            self.cast.counters["words on a new topic that got lost"] += 1
            server.unheard = True
            self.world.after(0.1 + 0.4 * self.random.random(), self._away, server)
            return
        self.world.after(LOOK_SECONDS, self._until_begun, looks - 1)

    def _away(self, server: ServerNode) -> None:
        server.unheard = False
        if self.world.over or not server.alive or server.restarting:
            return
        self.supervisor.kill_for(server, AWAY_SECONDS * (0.5 + self.random.random()))
        for proxy in self.cast.proxies:
            self.supervisor.kill(proxy)

    def one_witness(self) -> None:
        """Only one proxy learns of a server's new topic; the server restarts, and then both are away."""
        self._until_heard_by_one(LOOKS_MAX)

    def _until_heard_by_one(self, looks: int) -> None:
        if self.world.over or not looks:
            return
        for topic, server in self._given():
            knows = [one for one in self.cast.proxies if one.alive and topic in one.core.table.assignments.tentative]
            witness = self.random.choice(knows)
            self.world.note(f"of {topic} at {server.name} only {witness.name} hears")
            self.cast.counters["new topics of which one proxy alone heard"] += 1
            for proxy in self.cast.proxies:
                if proxy is not witness:
                    self.world.network.part(server.name, proxy.name, 3.0)
            self.world.after(0.1 + 0.3 * self.random.random(), self._anew, server, witness)
            return
        self.world.after(LOOK_SECONDS, self._until_heard_by_one, looks - 1)

    def _anew(self, server: ServerNode, witness: ProxyNode) -> None:
        if self.world.over or not server.alive or server.restarting:
            return
        self.supervisor.kill_for(server, 0.05)
        self.world.after(0.5 + 1.5 * self.random.random(), self._away_with, server, witness)

    def _away_with(self, server: ServerNode, witness: ProxyNode) -> None:
        if self.world.over or server.restarting or witness.restarting:
            return
        seconds = AWAY_SECONDS * (0.5 + self.random.random())
        for node in (server, witness):
            self.supervisor.kill_for(node, seconds)

    # Closes

    def close_midway(self) -> None:
        """A client is closed in order after Ctrl-C has cut a step of it off, or while its disk takes no commit.

        One that has taken messages and not handed them out, where there is one.
        """
        client = self._iterating()
        if not client.alive or client.paused:
            return
        if self.random.random() < 0.5:
            client.session.in_step = True
            self.cast.counters["clients closed after a step was cut off"] += 1
        else:
            client.host.disk.full = True
            client.host.disk.fail_in = self.random.choice((None, 0, 1, 2))
            self.cast.counters["clients closed while their disk takes no commit"] += 1
        client.close()
        client.host.disk.make_room()
        self.supervisor.restart(client)

    def _iterating(self) -> ClientNode:
        """A client that has taken messages and not handed them out, where there is one."""
        iterating = [
            one.node
            for one in self.cast.applications
            if any(chunk.handed < chunk.total for chunks in one.taking.iterating.values() for chunk in chunks)
        ]
        return self.random.choice(iterating or self.cast.clients)

    def reopen(self) -> None:
        """A step of a client is cut off, and it opens itself again; one that iterates, where there is one."""
        client = self._iterating()
        if client.alive and not client.paused:
            client.reopen()
            self.cast.counters["clients opened again after a step was cut off"] += 1

    # Calls

    def cancel(self) -> None:
        """A call of a client is cancelled where it waits, as by asyncio or a signal."""
        client = self.random.choice(self.cast.clients)
        if client.alive and not client.paused and client.cancel(self.random):
            self.cast.counters["calls cancelled"] += 1
