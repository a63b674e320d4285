"""Messengers by themselves, on the simulated network: endpoints of an ordinary loop, and the ones that talk to them.

The service's own endpoints are idempotent, so its traffic shows little of a Messenger's other promises: a request is
answered once, and a one-way message is handled once by each process that is there to handle it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pubsub.messenger.core import MessengerCore
from tests.simulation.history import History
from tests.simulation.world import Host, Process, World


class Talker(Process):
    """A process with a Messenger: an endpoint, or one that is connected to endpoints.

    Args:
        others: addresses that it talks to; none for an endpoint.
    """

    def __init__(self, world: World, host: Host, history: History, others: tuple[str, ...]) -> None:
        super().__init__(world, host)
        self.history, self.others = history, others
        self.address = f"tcp://{self.name}:9"
        self.addresses = [] if others else [self.address]
        self.finishing = False
        self.count = self.operations = 0
        self.waiting: dict[str, int] = {}
        """Requests of this life, and how often each was answered."""

    def begin(self) -> None:
        world = self.world
        self.core = MessengerCore(world.random.getrandbits(31), world.random, self._reply)
        self.handled: set[str] = set()
        self.waiting = {}
        self._peers: dict[Any, Any] = {}
        self._links: dict[Any, Any] = {}
        if self.others:
            for address in self.others:
                link = self.core.connected(address)
                self._links[address] = link
                self._peers[link.peer] = world.network.connect(self, address, address, fifo=False)
            world.after(0.02, self._talk, self.life)
        else:
            self._endpoint = self.core.opened(self.address, self._handle)

    # The talking Messengers

    def _talk(self, life: int) -> None:
        if life != self.life or not self.alive or self.finishing:
            return
        if not self.paused:
            self.count += 1
            peer = self.world.random.choice(list(self._peers))
            text = f"{self.name}/{life}/{self.count}"
            if self.world.random.random() < 0.5:
                token = self.core.register(peer, partial(self._answered, text))
                self.waiting[text] = 0
                self.core.send(peer, (b"ask " + text.encode(),), self.host.monotonic(), token=token)
            else:
                self.core.send(peer, (b"say " + text.encode(),), self.host.monotonic())
            self.operations += 1
            self._flush()
            self.wake(self.world.now)
        self.world.after(self.world.random.expovariate(1 / 0.1), self._talk, life)

    def _answered(self, text: str, peer: Any, contents: Any, frames: Any) -> None:
        self.waiting[text] += 1
        self.operations += 1
        if bytes(contents).decode() != text:
            self.history.violate(f"{self.name} asked {text} and was answered {bytes(contents)!r}")
        if self.waiting[text] > 1:
            self.history.violate(f"{self.name} was answered {text} twice")

    # Endpoints

    def _handle(self, request: Any) -> None:
        kind, _, text = bytes(request.contents).decode().partition(" ")
        self.operations += 1
        if text in self.handled:
            self.history.violate(f"{self.name} was given {text} twice")
        self.handled.add(text)
        if kind == "ask":
            # A slow handler may find its process killed.
            self.world.after(0.3 * self.world.random.random(), self._finish, self.life, request, text)

    def _finish(self, life: int, request: Any, text: str) -> None:
        if life == self.life and self.alive:
            request.reply(text.encode())
            self._flush()
            self.wake(self.world.now)

    def _reply(self, request: Any, contents: Any) -> None:
        self.core.answer(request, (contents,), self.host.monotonic())

    # The loop

    def turn(self) -> None:
        now = self.host.monotonic()
        batch, self.inbox = self.inbox, []
        for source, *frames in batch:
            if self.others:
                call = self.core.receive(self._links[source], b"", frames[0], frames[1:], now)
            else:
                call = self.core.receive(self._endpoint, frames[0], frames[1], frames[2:], now)
            if call is not None:
                call[0](*call[1])
        due = self.core.deadline()
        if due is not None and due <= now:
            self.core.tick(now)
        self._flush()

    def _flush(self) -> None:
        for peer, head, rest in self.core.take():
            frames = (bytes(head), *(bytes(part) for part in rest))
            if self.others:
                self.world.network.to_router(self._peers[peer], frames)
            else:
                self.world.network.to_dealer(self, peer.routing, frames)

    def deadline(self) -> float:
        if self.inbox:
            return float("-inf")
        due = self.core.deadline()
        return float("inf") if due is None else due

    def settled(self) -> str:
        """The open work, "" if there is none."""
        for text, answers in self.waiting.items():
            if not answers:
                return f"{self.name} was not answered {text}"
        # An endpoint may wait for a gone peer.
        waiting = self.core.pending.count if self.others else 0
        return f"{self.name} waits for {waiting} acknowledgements" if waiting else ""
