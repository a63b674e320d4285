"""A core without a shell: a test calls it and reads its acts and events."""

from __future__ import annotations

from typing import Any

from pubsub.services.core.interface import Act, Dial, Event, HangUp, Send


class Stage:
    """Drives one core; time moves only by calls.

    Attributes:
        dialled: port -> address, of the open ports.
    """

    def __init__(self, core: Any, now: float = 100.0) -> None:
        self.core, self.now = core, now
        self.dialled: dict[str, str] = {}
        self.acts: list[Act] = []
        self.events: list[Event] = []
        core.start(now)
        self._take()

    def _take(self) -> None:
        for act in self.core.take_sends():
            self.acts.append(act)
            if isinstance(act, Dial):
                self.dialled[act.port] = act.address
            elif isinstance(act, HangUp):
                del self.dialled[act.port]
        self.events += self.core.take_events()

    def receive(self, port: str, *frames: bytes, peer: bytes = b"") -> Stage:
        """A message comes."""
        self.core.receive(port, peer, list(frames), self.now)
        self._take()
        return self

    def do(self, name: str, *arguments: Any, **named: Any) -> Stage:
        """Call a method that takes the time last."""
        getattr(self.core, name)(*arguments, self.now, **named)
        self._take()
        return self

    def wait(self, seconds: float) -> Stage:
        """Time passes; each timer is looked after when it is due."""
        end = self.now + seconds
        while (due := self.core.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.tick(self.now)
            self._take()
            assert self.core.timer() is None or self.core.timer() > due, "a timer that is looked after and stays due"
        self.now = end
        return self

    def sent(self) -> list[tuple[str, bytes, tuple[bytes, ...]]]:
        """Messages since the last time."""
        found = [tuple(act) for act in self.acts if isinstance(act, Send)]
        self.acts.clear()
        return found  # type: ignore[return-value]

    def said(self) -> list[Event]:
        """Events since the last time."""
        found, self.events = self.events, []
        return found
