"""A server on a thread, and a ROUTER that plays its proxy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_router
from pubsub.protocol import Message, Outcome, Periodic, Status, decode, encode, join_topics
from pubsub.protocol.transfers import Owners
from pubsub.server.process import ServerProcess
from tests.server.stage import Stage


class Proxy:
    """One proxy, and through it a client."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.sock, self.endpoint = open_router(self.context, "tcp://127.0.0.1:0")
        self.server = b""
        self.heard: list[Message] = []
        self._callback = 100
        self.answer_whole = self.confirms = True

    def receive(self, timeout: float) -> tuple[bytes, int, Message] | None:
        if not self.sock.poll(int(timeout * 1000)):
            return None
        self.server, origin, head, *rest = self.sock.recv_multipart()
        prefix = unpack(head)
        message = decode(head[prefix.length :], rest[0] if rest else None)
        self.heard.append(message)
        if isinstance(message, Owners) and self.answer_whole:
            others = join_topics(dict.fromkeys(message.topics or {}, ""))
            self.send(Status("p1", Outcome.SUCCESS, body=others), b"", prefix.source)
        if isinstance(message, Periodic) and self.confirms:
            self.send(Status("p1", Outcome.SUCCESS, change=message.change), b"")
        return origin, prefix.destination, message

    def until(self, condition: Callable[[Message], bool], seconds: float = 30.0) -> Message:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            got = self.receive(deadline - time.monotonic())
            if got is not None and condition(got[2]):
                return got[2]
        raise AssertionError("it did not come in time")

    def ready(self) -> Periodic:
        message = self.until(lambda message: isinstance(message, Periodic))
        assert isinstance(message, Periodic)
        return message

    def send(self, message: Message, origin: bytes = b"cX", callback: int = 0, destination: int = 0) -> None:
        head, body = encode(message)
        frames = [self.server, origin, pack(1, callback, destination) + head, *([body] if len(body) else [])]
        self.sock.send_multipart(frames)

    def ask_later(self, message: Message) -> int:
        self._callback += 1
        self.send(message, callback=self._callback)
        return self._callback

    def answer(self, callback: int, seconds: float = 30.0) -> Status:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            got = self.receive(deadline - time.monotonic())
            if got is not None and got[1] == callback and isinstance(got[2], Status):
                assert got[0] == b"cX"
                return got[2]
        raise AssertionError("not answered in time")

    def ask(self, message: Message) -> Status:
        return self.answer(self.ask_later(message))

    def close(self) -> None:
        self.sock.close(0)
        self.context.term()


class Running:
    """A server on a thread of this process."""

    def __init__(self, directory: Path, proxy: Proxy, **changed: Any) -> None:
        settings = Stage.settings_of(directory, **{"proxies": (proxy.endpoint,), **changed})
        self.process = ServerProcess(settings)
        self.process.start()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.process.run()
        except BaseException as error:  # noqa: BLE001 - kept for the test
            self.error = error

    def stop(self) -> float:
        """Seconds that it took."""
        begin = time.monotonic()
        self.process.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.process.close()
        return time.monotonic() - begin


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)
