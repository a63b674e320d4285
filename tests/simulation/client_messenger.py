"""The Messenger of a simulated client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pubsub.messenger.core import MessengerCore

if TYPE_CHECKING:
    from tests.simulation.clients import ClientNode


class SimulatedMessenger:
    """The Messenger's core with the simulated network in place of its sockets and its thread."""

    def __init__(self, node: ClientNode) -> None:
        self.node = node
        self.core = MessengerCore(node.world.random.getrandbits(20), node.world.random, self._no_answer)
        self.ticker: Any = None
        self._peers: dict[Any, Any] = {}
        self._links: dict[int, Any] = {}

    def _no_answer(self, request: Any, contents: Any) -> None:
        raise AssertionError("a client answers nobody")

    def connect(self, address: str, *, curve: None, told: object) -> Any:
        link = self.core.connected(address)
        key = self.node.connected
        self.node.connected += 1
        self._links[key] = link
        self._peers[link.peer] = self.node.world.network.connect(self.node, address, key, fifo=False)
        return link.peer

    def send(self, peer: Any, contents: Any, callback: Any = None, *, retry: bool = True) -> int:
        parts = (contents,) if isinstance(contents, bytes | memoryview) else contents
        token = self.core.register(peer, callback, retry=retry) if callback is not None else 0
        self.core.send(peer, parts, self.node.host.monotonic(), token=token, retry=retry)
        self.flush()
        return token

    def flush(self) -> None:
        for peer, head, rest in self.core.take():
            if self.node.is_unwinding:
                continue
            frames = (bytes(head), *(bytes(part) for part in rest))
            self.node.world.network.to_router(self._peers[peer], frames)

    def forget(self, token: int) -> None:
        self.core.forget(token)

    def wake(self) -> None:
        # A call interrupted by a kill ends whenever Python collects it: its process has no waiting caller left.
        if self.node.alive and self.node.messenger is self:
            self.node.wake(self.node.world.now)

    def wait(self, done: Callable[[], bool], deadline: float) -> bool:
        return self.node.block(done, deadline)

    def close(self) -> None:
        pass

    def recover(self) -> None:
        pass

    driven_here = False

    def look(self) -> None:
        """Nothing is ever there that was not handed over."""

    def announce(self) -> None:
        pass

    def arrived(self, key: int, frames: list[bytes], now: float) -> None:
        if key not in self._links:
            return  # It comes over a connection of the earlier session, whose sockets are closed.
        call = self.core.receive(self._links[key], b"", frames[0], frames[1:], now)
        if call is not None:
            call[0](*call[1])
