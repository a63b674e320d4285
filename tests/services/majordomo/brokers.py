"""A broker and the peers of its tests: their messages in both directions."""

from __future__ import annotations

from pubsub.services.core.interface import Send
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits

READY, HEARTBEAT, DISCONNECT, FINAL, PARTIAL, REQUEST = (
    "ready",
    "heartbeat",
    "disconnect",
    "final",
    "partial",
    "request",
)

LEADS = {1: [b"", b"MDPW01"], 2: [b"MDPW02"]}
COMMANDS = {
    1: {READY: b"\x01", REQUEST: b"\x02", FINAL: b"\x03", HEARTBEAT: b"\x04", DISCONNECT: b"\x05"},
    2: {READY: b"\x01", REQUEST: b"\x02", PARTIAL: b"\x03", FINAL: b"\x04", HEARTBEAT: b"\x05", DISCONNECT: b"\x06"},
}


class Peers:
    """A broker, spoken to in both versions, and its answers by peer."""

    def __init__(self, **limits: float) -> None:
        self.broker = Broker(BrokerLimits(**limits))  # type: ignore[arg-type]
        self.now = 1_000.0
        self.sent: list[Send] = []
        self.broker.start(self.now)

    def raw(self, peer: bytes, *frames: bytes) -> list[tuple[bytes, ...]]:
        """A peer sends these frames; what anybody is sent then, with the peer first."""
        self.broker.receive(PORT, peer, list(frames), self.now)
        return self.told()

    def told(self) -> list[tuple[bytes, ...]]:
        self.sent = [act for act in self.broker.take_sends() if isinstance(act, Send)]
        return [(act.peer, *act.frames) for act in self.sent]

    def worker(self, peer: bytes, command: str, *frames: bytes, version: int = 1) -> list[tuple[bytes, ...]]:
        return self.raw(peer, *LEADS[version], COMMANDS[version][command], *frames)

    def call(self, peer: bytes, service: bytes, *body: bytes, version: int = 1) -> list[tuple[bytes, ...]]:
        lead = [b"", b"MDPC01"] if version == 1 else [b"MDPC02", b"\x01"]
        return self.raw(peer, *lead, service, *body)

    def pass_time(self, seconds: float) -> list[tuple[bytes, ...]]:
        """Let time pass, and the broker do what is due when it is due."""
        end = self.now + seconds
        told = []
        while (due := self.broker.timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            told += self.told()
        self.now = end
        return told

    def bye(self, peer: bytes, version: int = 1) -> tuple[bytes, ...]:
        return (peer, *LEADS[version], COMMANDS[version][DISCONNECT])

    def given(self, peer: bytes, client: bytes, *body: bytes, version: int = 1) -> tuple[bytes, ...]:
        return (peer, *LEADS[version], COMMANDS[version][REQUEST], client, b"", *body)
