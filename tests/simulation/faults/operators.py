"""The acts of operators on the simulated cluster: move, drain, abandon a server's topics, restore a server's backup.

Each does the same as its command, with the same messages, and like a command it may stop in the middle. The history
records the topics and times of their losses: the checks demand everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pubsub.errors import PubsubError
from pubsub.messenger.framing import pack
from pubsub.protocol import Operate, encode
from pubsub.protocol.messages import Message
from pubsub.proxy.replies import ORIGIN_MARK
from pubsub.server.offline.restore import end_logs
from pubsub.server.storage.store import Store
from tests.simulation.cast import Cast
from tests.simulation.disk import NAME
from tests.simulation.faults.kinds import Fault
from tests.simulation.history import ACKED
from tests.simulation.members import Paired, Server
from tests.simulation.nodes import ProxyNode, ServerNode
from tests.simulation.supervisor import Supervisor

LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 6.0
"""Seconds that an operator waits for a state before he leaves the work half done."""

NOBODY = b"an operator, who reads reports and no answers"


class Operators:
    """The operators of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random, self.history = cast.world, cast.random, cast.history
        self.backups: dict[str, tuple[dict[str, bytes], dict[str, frozenset[str]], set[str]]] = {}
        self._abandoning = False
        self._put_back: dict[str, set[str]] = {}
        """Restored servers, and the content of their copies."""
        self._gone: dict[str, set[str]] = {}
        """Logs that such a server held, and its copy does not."""

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {"drain": self.drain, "abandon": self.abandon, "put back": self.put_back}

    def _say(self, proxy: ProxyNode, message: Message) -> None:
        """Send a request to a proxy, for itself or for a server."""
        head, _ = encode(message)
        proxy.arrive(proxy.addresses[0], NOBODY, pack(1, 0, 1) + head)

    def through(self, server: Server, message: Message) -> None:
        """Send a request to a server through a proxy that hears the server."""
        for proxy in self.cast.proxies:
            known = proxy.core.table.named(server.name) if proxy.alive else None
            if known is not None and known.link is not None:
                head, _ = encode(message)
                proxy.transmit(known.link, (ORIGIN_MARK + NOBODY, pack(1, 0, 1) + head))
                return

    def _until(self, done: Callable[[], bool], then: Callable[[], None], failed: Callable[[], None]) -> None:
        """Look again and again, for as long as patience lasts."""
        deadline = self.world.now + PATIENCE_SECONDS

        def look() -> None:
            if self.world.now > deadline:
                failed()
            elif done():
                then()
            else:
                self.world.after(LOOK_SECONDS, look)

        look()

    def move(self, proxy: ProxyNode, giver: Server, receiver: Server, topic: str) -> None:
        """A proxy has a server give a topic to another one."""
        self.world.note(f"{proxy.name} has {giver.name} give {topic} to {receiver.name}")
        proxy.merge(giver.name, topic, receiver.address)

    # Drain

    def drain(self) -> None:
        """A server gets no topic until it is reopened; its topics move away, if possible."""
        server = self.random.choice(self.cast.servers)
        stop = self.random.random() < 0.5
        self.world.note(f"{server.name} {'takes topics again' if stop else 'is drained'}")
        self.through(server, Operate("op", server.name, "drain", stop=int(stop)))
        others = [other for other in self.cast.servers if other is not server and other.alive]
        if stop or not server.alive or not others:
            return
        for topic in sorted(server.core.state.topics):
            to = self.random.choice(others)
            self.through(server, Operate("op", server.name, "move", topic, to.name, to.address))

    def gave_up(self) -> bool:
        """Whether something was given up, which proxies have to remember."""
        cores = [getattr(proxy, "core", None) for proxy in self.cast.proxies]
        return self._abandoning or any(core is not None and core.table.abandoned for core in cores)

    def remembered_without(self, proxy: ProxyNode) -> bool:
        """Whether another present proxy also knows a proxy's abandoned logs."""
        lost = _given_up(proxy)
        others = [other for other in self.cast.proxies if other is not proxy and other.alive]
        return not lost or any(lost <= _given_up(other) for other in others)

    def finish(self) -> None:
        """Make all well for the end: servers take topics again, and no process waits for lost ones."""
        self._end_drains()
        self._end_forgotten()
        self._clear_up()

    def _end_drains(self) -> None:
        """No server may drain: repeated until the end, since a drain may still be on its way to a server."""
        for server in self.cast.servers:
            if not server.alive or server.core.proxies.draining:
                self.through(server, Operate("op", server.name, "drain", stop=1))
        self.world.after(LOOK_SECONDS, self._end_drains)

    def _end_forgotten(self) -> None:
        """A client that lost its directory and stays away has a subscription whose backlog would fill the topic."""
        for server in self.cast.servers:
            held = server.core.state.topics if server.alive else {}
            for application in self.cast.applications:
                for topic in sorted(application.subscriber.forgotten & held.keys()):
                    subscription = held[topic].subscriptions.get(application.name)
                    if subscription is not None and subscription.on:
                        told = Operate("op", server.name, "unsubscribe", topic, subscriber=application.name)
                        self.through(server, told)
        self.world.after(LOOK_SECONDS, self._end_forgotten)

    # Giving up

    def abandon(self) -> None:
        """A server dies, its part of a topic is abandoned, and then it returns."""
        servers = [server for server in self.cast.servers if server.alive and server.core.state.topics]
        if not servers or len(self.cast.servers) < 2 or self._abandoning:
            return
        self._abandoning = True
        server = self.random.choice(servers)
        topic = self.random.choice(sorted(server.core.state.topics))
        others = [other for other in servers if other is not server]
        if others and self.random.random() < 0.5:
            giver = self.random.choice(others)
            topic = self.random.choice(sorted(giver.core.state.topics))
        self.world.note(f"{server.name} dies, and {topic} is to be given up there")
        server.restarting = True  # No supervisor starts it meanwhile.
        givers = [
            other for other in servers if topic in other.core.state.topics and topic not in server.core.state.topics
        ]
        if givers:  # It dies while the topic is on its way to it.
            self.through(givers[0], Operate("op", givers[0].name, "move", topic, server.name, server.address))
            self._kill_when_given(server, givers[0], topic, 100)
        else:
            server.end("killed")

        def unheard() -> bool:
            return all(
                proxy.alive
                and not proxy.paused
                and not any(known.id == server.name for known in proxy.core.table.alive(proxy.host.monotonic()))
                for proxy in self.cast.proxies
            )

        self._until(unheard, partial(self._give_up, server, topic), partial(self._back, server))

    def _kill_when_given(self, server: Server, giver: Server, topic: str, looks: int) -> None:
        """Kill a receiver as soon as the giver is bound to it, or after so many looks."""
        held = giver.core.state.topics.get(topic) if giver.alive else None
        if looks and held is not None and held.frozen != server.address and not self.world.over:
            self.world.after(0.003, self._kill_when_given, server, giver, topic, looks - 1)
        else:
            server.end("killed")

    def _back(self, server: Server) -> None:
        self._abandoning = False
        server.restarting = False
        if not server.alive:
            self.supervisor.restart(server)

    def _lost_logs(self, server: Server, topic: str) -> set[tuple[str, str]]:
        """(store, log) of the server's logs, as known to proxies and the other servers."""
        lost = set()
        for proxy in self.cast.proxies:
            if proxy.alive:
                table = proxy.core.table
                lost |= {
                    (known.store, known.topics[topic]) for known in table.holders(topic) if known.id == server.name
                }
                lost |= {(d.store, d.log) for d in table.abandoned.get(topic, {}).values() if d.server == server.name}
                if any(known.id == server.name for known in table.assignments.doubts.get(topic, ())):
                    lost.add(("", ""))
        known_logs = {log for _, log in lost}
        for other in self._others(server):
            held = other.core.state.topics.get(topic)
            if held is not None:
                lost |= {
                    ("", log) for log, name in held.contested.items() if name == server.name and log not in known_logs
                }
        return lost

    def _others(self, server: Server) -> list[Server]:
        return [other for other in self.cast.servers if other is not server and other.alive]

    def _give_up(self, server: Server, topic: str) -> None:
        lost = self._lost_logs(server, topic)
        held = [other.core.state.topics.get(topic) for other in self._others(server)]
        if not lost and any(one is not None and one.frozen == server.address for one in held):
            lost = {("", "")}
        if not lost:
            self._back(server)
            return
        self.history.give_up(topic, float("inf"), losses=len(lost))
        told = Operate("op", "-", "abandon", topic, server.name, server.address)
        for proxy in self.cast.proxies:
            for store, log in sorted(lost):
                self._say(proxy, self._of(told, store, log))

        def known() -> bool:
            return all(
                proxy.alive
                and not proxy.core.replies.suspended
                and {log for _, log in lost if log} <= proxy.core.table.abandoned.get(topic, {}).keys()
                and not any(holder.id == server.name for holder in proxy.core.table.holders(topic))
                and not any(holder.id == server.name for holder in proxy.core.table.assignments.doubts.get(topic, ()))
                for proxy in self.cast.proxies
            )

        tell = partial(self._wait_for_servers, server, topic)
        self._until(known, tell, partial(self._back, server))

    @staticmethod
    def _of(told: Operate, store: str, log: str) -> Operate:
        return Operate("op", "-", "abandon", told.topic, told.server, told.address, log=log, store=store)

    def _wait_for_servers(self, server: Server, topic: str) -> None:
        """Proxies make servers drop their gifts to the abandoned server, as `pubsub topic abandon` does."""
        told = Operate("op", "-", "abandon", topic, server.name, server.address)

        def taken_back() -> bool:
            held = [other.core.state.topics.get(topic) for other in self._others(server)]
            waiting = any(one is not None and one.frozen == server.address for one in held)
            for proxy in self.cast.proxies if waiting else ():
                self._say(proxy, self._of(told, "", ""))
            return not waiting

        def done() -> None:
            self.world.note(f"{topic} is given up at {server.name}")
            self.history.give_up(topic, self.world.now)
            self._back(server)

        self._until(taken_back, done, partial(self._back, server))

    # Backups

    def put_back(self) -> None:
        """A server's store is copied; or it is lost, and the copy of it is all there is."""
        server = self.random.choice(self.cast.servers)
        if not server.alive or server.restarting or isinstance(server, Paired):
            return  # A member's store is put back by `members`.
        holds = {
            name: frozenset(topic.logs) | frozenset(topic.merged) for name, topic in server.core.state.topics.items()
        }
        acknowledged = {put.body for put in self.history.states((ACKED,))}
        server.end("killed")
        known = self.backups.pop(server.name, None)
        if known is None:
            self.world.note(f"{server.name} is copied")
            self.backups[server.name] = (server.host.disk.copy(), holds, acknowledged)
        else:
            self._restore(server, holds, *known)
        self.supervisor.restart(server)

    def _restore(
        self,
        server: ServerNode,
        holds: dict[str, frozenset[str]],
        files: dict[str, bytes],
        held: dict[str, frozenset[str]],
        acknowledged: set[str],
    ) -> None:
        disk = server.host.disk
        self.world.note(f"{server.name} is put back to a copy")
        disk.full, disk.refusals = False, 0
        disk.restore(files)
        try:
            store = Store(Path(f"/{server.name}"), vfs=NAME)
            end_logs(store, int(server.host.wall() * 1_000_000))
            store.close()
        except PubsubError as error:
            self.history.violate(f"{server.name}: a copy cannot be put back: {error}")
        self.cast.crews.restored()
        for topic in sorted(holds.keys() | held.keys()):
            if topic in holds:
                # A part held then and now without a break is as safe as it was then.
                safe = acknowledged if holds[topic] == held.get(topic) else frozenset()
                # Delayed messages that were due may have come meanwhile, so the copy does not deliver them.
                past = self.world.now + self.history.skew
                safe = frozenset(body for body in safe if not 0 < self.history.puts[body].due <= past)
                # A reader in a log merged since the copy learns of the loss in that log, and of the end of the copy's
                # own.
                losses = 2 if topic in held and holds[topic] - held[topic] else 1
                self.history.give_up(topic, self.world.now, but=safe, losses=losses)
        # After the restore of two servers, none may know the messages after a copy: one lost the topics taken over from
        # the other.
        for topics in [topics for name, topics in self._put_back.items() if name != server.name]:
            for topic in sorted(topics | held.keys()):
                self.history.give_up(topic, self.world.now, losses=1)
        self._put_back.setdefault(server.name, set()).update(held)
        known = frozenset().union(*held.values()) if held else frozenset()
        gone = frozenset().union(*holds.values()) - known if holds else frozenset()
        self._gone.setdefault(server.name, set()).update(gone)

    def _clear_up(self) -> None:
        """Abandon the topics that a server waits for and another one has lost with its store."""
        for server in self.cast.servers:
            if server.name not in self._put_back or not server.alive:
                continue
            for topic in self.cast.topics():
                if topic not in server.core.state.topics and self._waits_for(server, topic):
                    self._give_up(server, topic)
        self.world.after(1.0, self._clear_up)

    def _waits_for(self, server: Server, topic: str) -> bool:
        """Whether somebody waits for a log that this server has lost with its store, and for no other reason."""
        held = [other.core.state.topics.get(topic) for other in self._others(server)]
        return any(
            name == server.name and log in self._gone.get(name, ())
            for topic in held
            if topic is not None
            for log, name in topic.contested.items()
        )


def _given_up(proxy: ProxyNode) -> set[tuple[str, str]]:
    """Topics and logs that a proxy knows as given up, or did when it ended."""
    core = getattr(proxy, "core", None)
    return {(topic, log) for topic, logs in core.table.abandoned.items() for log in logs} if core is not None else set()
