"""Cores wired to a broker's core without sockets: messages under way, deaths, and time, all in a seed's order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from pubsub.services.core.interface import Core, Dial, Event, HangUp, Send
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits


class Node:
    """A core that dials the broker, with what it has open.

    Args:
        name: of the node.
        make: a new core, at each start.
        told: is given each event.
    """

    def __init__(self, name: str, make: Callable[[], Core], told: Callable[[Any, Event, float], None]) -> None:
        self.name, self.make, self.told = name, make, told
        self.core: Core | None = None
        self.ports: dict[str, bytes] = {}
        self.commit: Callable[[Any, float], None] | None = None
        self.sent: Callable[[Send], None] | None = None


class Wired:
    """A broker and nodes.

    Args:
        seed: decides what happens when.
        limits: of the broker.
    """

    def __init__(self, seed: int, limits: BrokerLimits | None = None) -> None:
        self.random = Random(seed)
        self.limits = limits or BrokerLimits()
        self.now = 1_000.0
        self.broker: Broker | None = Broker(self.limits)
        self.nodes: dict[str, Node] = {}
        self.links: dict[bytes, tuple[deque[tuple[bytes, ...]], deque[tuple[bytes, ...]]]] = {}
        """Peer -> what is on its way to the broker, and from it."""
        self._peers: dict[bytes, tuple[Node, str]] = {}
        self._dialled = 0

    def add(self, node: Node) -> Node:
        self.nodes[node.name] = node
        return node

    def start(self, node: Node) -> None:
        node.core = node.make()
        node.core.start(self.now)
        self.settle(node)

    def kill(self, node: Node) -> None:
        """As SIGKILL: what is on its way from it still arrives, or not."""
        node.core = None
        for peer in node.ports.values():
            self._cut(peer)
        node.ports.clear()

    def kill_broker(self) -> None:
        self.broker = None
        for node in self.nodes.values():
            for port, peer in list(node.ports.items()):
                to, back = self.links[peer]
                to.clear(), back.clear()
                if node.core is not None:
                    node.core.ended(port, self.now)
                    self.settle(node)

    def start_broker(self) -> None:
        self.broker = Broker(self.limits)

    def _cut(self, peer: bytes) -> None:
        to, back = self.links[peer]
        back.clear()
        while to and self.random.random() < 0.5:
            to.pop()
        self._peers.pop(peer, None)
        if not to:
            del self.links[peer]

    def settle(self, node: Node) -> None:
        """Make durable, send and tell what a node wants."""
        while node.core is not None:
            if node.commit is not None:
                node.commit(node.core, self.now)
            if node.core is None:  # It died while it wrote.
                return
            acts, events = node.core.take_sends(), node.core.take_events()
            if not acts and not events:
                return
            for act in acts:
                if isinstance(act, Dial):
                    self._hang_up(node, act.port)
                    self._dialled += 1
                    peer = b"%d" % self._dialled
                    node.ports[act.port] = peer
                    self._peers[peer] = node, act.port
                    self.links[peer] = deque(), deque()
                elif isinstance(act, HangUp):
                    self._hang_up(node, act.port)
                elif act.port in node.ports:
                    if node.sent is not None:
                        node.sent(act)
                    self.links[node.ports[act.port]][0].append(act.frames)
            for event in events:
                node.told(node.core, event, self.now)

    def _hang_up(self, node: Node, port: str) -> None:
        if port in node.ports:
            self._cut(node.ports.pop(port))

    def _settle_broker(self) -> None:
        while self.broker is not None:
            acts = self.broker.take_sends()
            self.broker.take_events()
            if not acts:
                return
            for act in acts:
                assert isinstance(act, Send)
                if act.peer in self._peers:
                    self.links[act.peer][1].append(act.frames)
                else:
                    self.broker.undelivered(act, self.now, gone=True)

    def step(self) -> None:
        """Deliver a message of a link that the seed chooses, or let time pass until something is due."""
        ways = [
            (peer, way)
            for peer, queues in self.links.items()
            for way, queue in enumerate(queues)
            if queue and (way == 1 or self.broker is not None)
        ]
        if ways:
            peer, way = self.random.choice(ways)
            queue = self.links[peer][way]
            frames = queue.popleft()
            if way == 0:
                assert self.broker is not None
                self.broker.receive(PORT, peer, frames, self.now)
                self._settle_broker()
                if peer not in self._peers and not queue:
                    self.links.pop(peer, None)
            else:
                node, port = self._peers[peer]
                assert node.core is not None
                node.core.receive(port, b"", frames, self.now)
                self.settle(node)
        if not ways or self.random.random() < 0.05:
            self._pass_time(jump=not ways)

    def _pass_time(self, *, jump: bool) -> None:
        cores: list[Core] = [node.core for node in self.nodes.values() if node.core is not None]
        if self.broker is not None:
            cores.append(self.broker)
        dues = [due for due in (core.timer() for core in cores) if due is not None]
        self.now = max(self.now, min(dues, default=self.now + 1.0)) if jump else self.now + 0.01
        for node in self.nodes.values():
            if node.core is not None and (due := node.core.timer()) is not None and due <= self.now:
                node.core.tick(self.now)
                self.settle(node)
        if self.broker is not None and (due := self.broker.timer()) is not None and due <= self.now:
            self.broker.tick(self.now)
            self._settle_broker()
