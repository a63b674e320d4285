"""Strangers at the ports of queues and servers, as processes: they get nothing, and the others keep their service."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import zmq

from pubsub.services.client import ServiceClient
from tests.faults.cluster import Process
from tests.services.running import Town, address

pytestmark = pytest.mark.faults

MEMORY_BYTES_MAX = 300 * 1024 * 1024
"""Of a process that strangers do their worst to, resident."""


def raw(at: str, *pieces: bytes) -> None:
    """Bytes over TCP, as far as somebody takes them."""
    host, port = at.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), 10.0) as sock:
        sock.settimeout(10.0)
        try:
            for piece in pieces:
                sock.sendall(piece)
        except OSError:
            return


def no_zeromq(at: str, chance: random.Random) -> None:
    raw(at, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    raw(at, b"\x16\x03\x01\x02\x00" + chance.randbytes(512))
    raw(at, b"\xff" * 64)
    raw(at, b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + chance.randbytes(300))


def connections_that_say_nothing(at: str, chance: random.Random) -> None:
    host, port = at.removeprefix("tcp://").split(":")
    socks = [socket.create_connection((host, int(port)), 10.0) for _ in range(200)]
    for sock in socks:
        sock.close()


def random_frames(at: str, chance: random.Random) -> None:
    words = [b"", b"\x01", b"\x02", b"\x03", b"1", b"echo", b"mmi.service", b"PING"]
    words += [b"MDPC01", b"MDPW01", b"MDPC02", b"MDPW02"]
    with zmq.Context() as context:
        for _ in range(5):
            with context.socket(chance.choice([zmq.DEALER, zmq.REQ])) as sock:
                sock.linger, sock.sndtimeo = 0, 1000
                sock.connect(at)
                with suppress(zmq.Again):  # Who listens there wants no such socket.
                    for _ in range(200 if sock.type == zmq.DEALER else 1):
                        frames = [chance.choice([*words, chance.randbytes(20)]) for _ in range(chance.randint(1, 9))]
                        sock.send_multipart(frames)
                sock.poll(50)


def many_frames_and_large_ones(at: str, chance: random.Random) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = sock.sndtimeo = 1000
        sock.connect(at)
        with suppress(zmq.Again):
            sock.send_multipart([b"", *[b"x"] * 5000])
            for _ in range(4):
                sock.send_multipart([b"", bytes(8 * 1024 * 1024)])
        sock.poll(200)


def who_takes_nothing(at: str, chance: random.Random) -> None:
    """Asks and asks, and never reads a reply."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger, sock.rcvhwm, sock.rcvbuf, sock.sndtimeo = 0, 1, 1024, 200
        sock.connect(at)
        with suppress(zmq.Again):  # The service may have ended the connection.
            for _ in range(3000):
                sock.send_multipart([b"", b"x" * 1000])


STRANGERS: list[Callable[[str, random.Random], None]] = [
    no_zeromq,
    connections_that_say_nothing,
    random_frames,
    many_frames_and_large_ones,
    who_takes_nothing,
]


class Well:
    """A caller who asks all the time."""

    def __init__(self, at: str, kind: str) -> None:
        self.client = ServiceClient(at, kind=kind, timeout=5.0, tries=6)
        self.flaws: list[str] = []
        self.answered = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            body = b"%d" % self.answered
            try:
                reply = self.client.call("echo", body)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test says so.
                self.flaws.append(str(error))
                return
            self.answered += 1
            if reply.body != body:
                self.flaws.append(f"{body!r} was answered {reply.body!r}")

    def end(self) -> None:
        self._stopping = True
        self._thread.join()
        self.client.close()


def resident(process: Process) -> int:
    with open(f"/proc/{process.running.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@pytest.fixture(params=["simple", "paranoid", "mdp", "lazy", "freelance2", "freelance3", "pair"])
def town(request, tmp_path) -> Iterator[tuple[str, list[str], Process]]:
    """Where callers ask and how, the ports that strangers find, and whose they are."""
    front, back, kind = address(), address(), request.param
    with Town(tmp_path) as made:
        served = kind in {"lazy", "freelance2", "freelance3"}
        if served:
            service = made.service("service", "serve", "--kind", kind, "--bind", front)
            ports = [front]
        elif kind == "pair":  # The other one is not there, and whoever asks makes this one active.
            where = ("--bind", front, "--state", back, "--peer", address())
            service = made.service("service", "pair", "--primary", *where)
            ports = [front, back]
        elif kind == "mdp":
            service = made.service("service", "broker", "--bind", front)
            ports = [front]
        else:
            service = made.service("service", "queue", "--kind", kind, "--frontend", front, "--backend", back)
            ports = [front, back]
        service.wait_line("server" if served else {"mdp": "broker", "pair": "primary"}.get(kind, "queue"))
        if not served and kind != "pair":
            for number in range(2):
                made.service(f"worker{number}", "work", "echo", "--kind", kind, "--broker", ports[-1])
        yield (kind if kind in {"mdp", "freelance2", "freelance3"} else "lazy"), ports, service


def test_other_clients_keep_their_service_beside_hostile_peers(town):
    kind, ports, service = town
    well = Well(ports[0], kind)
    chance = random.Random(1)
    for stranger in STRANGERS:
        for port in ports:
            stranger(port, chance)
    before = well.answered
    another = ServiceClient(ports[0], kind=kind, timeout=5.0, tries=6)
    for number in range(20):
        assert another.call("echo", b"new %d" % number).body == b"new %d" % number
    another.close()
    well.end()
    assert well.flaws == []
    assert well.answered > before
    assert service.running.poll() is None
    assert "Traceback" not in service.errors.read_text()
    assert resident(service) < MEMORY_BYTES_MAX
