"""A core that hangs up, or dials anew, because of a message on the socket that is being read."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import zmq

from pubsub.services.core.interface import BaseCore, Dial, HangUp, Send
from pubsub.services.engine import Engine
from tests.faults.cluster import until
from tests.services.running import address


class Moody(BaseCore):
    """Dials anew whenever it is told to, hangs up when that is all, and greets whom it has dialled."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def start(self, now: float) -> None:
        self._sends += [Dial("friend", self._at), Send("friend", b"", (b"hello",))]

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        self.counters[frames[0].decode()] += 1
        if frames[0] == b"again":
            self.start(now)
        elif frames[0] == b"enough":
            self._sends.append(HangUp("friend"))


def test_messages_behind_the_one_that_ends_a_connection_stay_unread() -> None:
    at = address()
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.bind(at)
    core = Moody(at)
    engine = Engine(core)
    engine.open()
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    try:
        for word in (b"again", b"again", b"enough"):
            assert router.poll(30_000)
            friend, hello = router.recv_multipart()
            assert hello == b"hello"
            for message in (b"one", word, b"unread"):
                router.send_multipart([friend, message])
        until(lambda: core.counters["enough"], "it is told")
        assert thread.is_alive()
    finally:
        engine.stop()
        thread.join()
        engine.close()
        router.close()
        context.term()
    assert core.counters == {"one": 3, "again": 2, "enough": 1}
