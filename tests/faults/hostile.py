"""What a hostile peer does to a port, and how it is told whether others still get their service."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from zlib import crc32

import zmq

from pubsub.cli.reports import gather
from pubsub.config.settings import ClientSettings
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer
from pubsub.protocol import Message, Outcome, Status, decode, encode
from pubsub.protocol import messages as m
from pubsub.protocol.batch import encode_batch
from tests.faults.cluster import Cluster, Process, until

MIB: Final = 1024 * 1024
LOG: Final = "0123456789abcdef"
NEAR: Final = (0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**30, -1)
"""Numbers at the edges of what fits somewhere."""

WORDS: Final = (
    *(b"!v=2", b"!v=", b"!new=1", b"v=1", b"=", b"", b" ", b"..", b"-", b"\r\n\r\n", b"\0", b"\xff" * 9, b"PUT", b"x="),
    *(b"A" * 70, b"B" * 20_000, b"topic=\xe9", b"log=" + b"g" * 16, b"crc=99999999999", b"last=" + b"9" * 300),
)

PORTS: Final = ("clients", "servers", "other servers")


class Well:
    """A client that puts and gets all the time, on a thread of its own: what it puts comes back once, in order.

    A call that fails, or a message that is not the next one, ends it; `served` then says so.
    """

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self._client = cluster.client(name)
        self._topic = topic
        self._client.subscribe(topic)
        self.rounds = 0
        self.error: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                body = b"%d" % self.rounds
                self._client.put(self._topic, body)
                got = self._client.get(self._topic)
                assert got is not None, "nothing came"
                assert got.body == body, f"{got.body!r} came in place of {body!r}"
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error

    def served(self, rounds: int = 3) -> None:
        """So many rounds more, all of them begun after this call."""
        wanted = self.rounds + rounds + 1

        def done() -> bool:
            if self.error is not None:
                raise AssertionError("the well-behaved client lost its service") from self.error
            return self.rounds >= wanted

        until(done, "the well-behaved client is served")

    def stop(self) -> None:
        """After the round it is in."""
        self._stopping = True
        self._thread.join(60)
        assert not self._thread.is_alive()


class Town:
    """A proxy, two servers, and a client that behaves well.

    Attributes:
        well: the client.
    """

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        cluster.proxy(**options)
        for _ in range(2):
            cluster.server(**options)
        self.cluster = cluster
        cluster.wait_ready()
        until(lambda: sum(one["alive"] for one in cluster.report("-")["servers"]) == 2, "both servers are heard")
        self.well = Well(cluster, "well", "kept")
        self.well.served()
        owner = next(name for name in ("s1", "s2") if "kept" in cluster.report(name)["topics"])
        self.owner, self.other = owner, "s1" if owner == "s2" else "s2"

    @property
    def everyone(self) -> list[Process]:
        """All processes."""
        return [*self.cluster.proxies, *self.cluster.servers]

    def endpoint(self, port: str) -> str:
        """Where a port of PORTS is; that for other servers is the one of the well-behaved client's server."""
        if port == "clients":
            return self.cluster.addresses[0]
        if port == "servers":
            return self.cluster.inner[0]
        return self.process(self.owner).ready().split()[-1]

    def process(self, name: str) -> Process:
        """A server by its ID, or the proxy ("-")."""
        return next((server for server in self.cluster.servers if server.name == name), self.cluster.proxies[0])

    def behind(self, port: str) -> str:
        """Whose report speaks of a port."""
        return self.owner if port == "other servers" else "-"

    def counters(self, target: str) -> dict[str, int]:
        """What a server or the proxy (`-`) has counted, as `pubsub status --json` shows it."""
        return dict(until(lambda: self._report(target), f"{target} reports")["counters"])

    def _report(self, target: str) -> dict[str, Any]:
        found = gather(ClientSettings(proxies=tuple(self.cluster.addresses)), 20.0)
        parts = found["proxies"] if target == "-" else [one for one in found["servers"] if one["id"] == target]
        return next((part["report"] for part in parts if part["answered"]), {})

    def counted(self, target: str, name: str, before: dict[str, int], least: int = 1) -> None:
        """It has been counted so many times more often than `before`; a report may be as old as a moment."""
        wanted = before.get(name, 0) + least
        until(lambda: self.counters(target).get(name, 0) >= wanted, f"{target} counts {name}, {wanted} in all")

    def unharmed(self) -> None:
        """The well-behaved client is served, and every process lives."""
        self.well.served()
        for process in self.everyone:
            assert process.running.poll() is None, process.errors.read_text()[-2000:]
            assert "Traceback" not in process.errors.read_text()


class Growth:
    """By how many bytes processes have grown at most since it was made."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._before = {}
        for process in processes:
            place = Path(f"/proc/{process.running.pid}")
            (place / "clear_refs").write_text("5")  # The peak begins anew.
            self._before[process.name] = place, _resident(place, "VmRSS")

    def peaks(self) -> dict[str, int]:
        """By process."""
        return {name: _resident(place, "VmHWM") - before for name, (place, before) in self._before.items()}

    def within(self, limit: int) -> None:
        """None has grown by more."""
        peaks = self.peaks()
        assert max(peaks.values()) <= limit, {name: f"{size / MIB:.0f} MiB" for name, size in peaks.items()}


def _resident(place: Path, which: str) -> int:
    line = next(line for line in (place / "status").read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) * 1024


class Peer:
    """A connection that sends whatever it likes; a context manager."""

    def __init__(self, endpoint: str, *, reads: bool = True) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.sock = open_dealer(self._context, endpoint)
        if not reads:
            self.sock.close(0)
            self.sock = self._context.socket(zmq.DEALER)
            self.sock.linger = 0
            self.sock.rcvhwm, self.sock.rcvbuf = 1, 4096
            self.sock.connect(endpoint)
        self.answers: dict[str, int] = {}
        self._fence = self._answered = 2**50

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.sock.close(0)
        self._context.term()

    def send(self, frames: Sequence[bytes | memoryview], seconds: float = 20.0) -> None:
        """As soon as there is room."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.sock.send_multipart(list(frames), zmq.NOBLOCK)
            except zmq.Again:
                assert time.monotonic() < deadline, "nothing is taken any more"
                self.sock.poll(20, zmq.POLLOUT)
                self.take()
            else:
                return

    def take(self) -> None:
        """What is there of answers, by outcome; what is no answer counts as such."""
        while True:
            try:
                frames = self.sock.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._count(frames)

    def _count(self, frames: list[bytes]) -> None:
        if not frames[0]:
            frames = frames[1:]  # A proxy's conversation with servers has an origin in front.
        head, *rest = frames
        prefix = unpack(head)
        self._answered = prefix.destination if prefix.destination == self._fence else self._answered
        said = decode(head[prefix.length :], rest[0] if rest else b"")
        name = str(said.outcome) if isinstance(said, Status) else type(said).__name__
        self.answers[name] = self.answers.get(name, 0) + 1

    def until(self, condition: Callable[[], bool]) -> None:
        """Takes answers until it holds."""

        def done() -> bool:
            self.sock.poll(20)
            self.take()
            return condition()

        until(done, f"an answer is awaited; there are {self.answers}")

    def until_answered(self, *outcomes: str) -> None:
        """At least one answer of each."""
        self.until(lambda: set(outcomes) <= self.answers.keys())

    def all_taken(self, port: str) -> None:
        """Until what it has sent is dealt with: messages are, in their order."""
        self._fence += 1
        last: dict[str, Message] = {
            "clients": m.Report("eve", "-"),
            "servers": m.Whole("nobody"),
            "other servers": m.Transfer("eve", "nowhere", "commit", "f" * 16),
        }
        self.send(framed(last[port], callback=self._fence, origin=b"" if port == "servers" else None))
        self.until(lambda: self._answered == self._fence)


def framed(message: Message, number: int = 1, callback: int = 40, origin: bytes | None = None) -> list[bytes]:
    """A message as it is sent."""
    head, body = encode(message)
    frames = [pack(number, callback, 0) + head, *([bytes(body)] if len(body) else [])]
    return frames if origin is None else [origin, *frames]


def put(topic: str, counter: int, body: bytes, *, sender: str = "eve", previous: int = 0) -> m.Put:
    """A put of one record."""
    batch = encode_batch([body])
    return m.Put(sender, topic, counter, LOG, 1, previous, crc32(batch), body=batch)


def samples(chance: random.Random) -> list[Message]:
    """One of each message, none of which is about what others use."""
    topic, who = f"t{chance.randrange(50)}", f"eve{chance.randrange(20)}"
    number = chance.choice([n for n in NEAR if 0 <= n < 2**63])
    place = (LOG, min(number, 2**40 - 1))
    table = {f"t{chance.randrange(99)}": LOG for _ in range(chance.randrange(5))}
    line = chance.choice(CHUNKS)
    return [
        m.Subscribe(who, topic, number, number, log=LOG, avoid=LOG),
        m.Subscribe(who, topic, number, number, name=who, start="earliest"),
        m.Unsubscribe(who, topic, number, number),
        m.Get(who, topic, place, number, number, records_max=number, bytes_max=number, wait_ms=number),
        m.Read(who, topic, None, place, records_max=number, bytes_max=number),
        put(topic, max(1, number), b"x", sender=who, previous=chance.choice([0, number])),
        m.Put(who, topic, number, LOG, number, number, 0, body=b"\1\0\0\0" + b"\xff" * 4 + b"x"),
        m.Stage(who, topic, number, LOG, who, number, number, 0, body=b"x"),
        m.Publish(who, topic, number, LOG, {who: number}),
        m.Periodic(who, LOG, number, number, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", number, 0, table, number),
        m.Heartbeat(who, number),
        m.Whole(who, table),
        m.Transfer(who, topic, chance.choice(["offer", "chunk", "commit", "x"]), LOG, number, LOG, line),
        m.Report(who, chance.choice(["-", "s9", who])),
        m.Operate(who, chance.choice(["-", "s9"]), chance.choice(["abandon", "move", "x"]), topic, "s9", log=LOG),
        m.Status(who, Outcome.SUCCESS, place, last=number, number=number, body=b"t=1"),
        m.Merge(who, topic, "tcp://127.0.0.1:1", LOG),
    ]


CHUNKS: Final = (
    b"",
    b"\n",
    b"null\n",
    b"[" * 100_000 + b"\n",
    b'{"open":' * 50_000 + b"\n",
    b'{"open": "%s", "logs": [["%s", 1, 1e400, 1, 0]]}\n' % (LOG.encode(), LOG.encode()),
    b'{"open": "%s", "logs": [["%s", 1, 9223372036854775807, 1, 0]], "spine": [], "absorbed": [], "ended": [],'
    b' "rivals": {}}\n' % (LOG.encode(), LOG.encode()),
    b'{"log": "%s", "rows": [[1, 9223372036854775807, "a/b", 1, 1, 1, 1, 16777216]]}\nx' % LOG.encode(),
    b'{"log": "%s", "rows": [[1, 1, "a/b", 1, 1, 1, 1, -2]]}\nx' % LOG.encode(),
    b'{"stage": ["a/b", 1, "x", 1], "rows": [[0, 1, 1, -5]]}\nxxxxx',
    b'{"skip": 1, "counters": [["no publisher", 1]]}\n',
    b'{"last": [["eve/%s", %s]]}\n' % (LOG.encode(), b"9" * 5000),
    b'{"entries": [["eve", 1, 1, true, 1, "%s", 1, 5]]}\n' % LOG.encode(),
    b'{"entries": 5}\n',
)
"""Bodies of TRANSFER."""


def fuzz(seed: int, count: int, origin: bool) -> Iterator[list[bytes]]:
    """So many messages: arbitrary frames, valid messages, and such of which something was changed.

    Args:
        origin: put an origin frame in front, as servers do.
    """
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.15:
            frames = [chance.randbytes(chance.choice((0, 1, 5, 80, 5_000))) for _ in range(chance.randrange(1, 13))]
        else:
            message = chance.choice(samples(chance))
            number, callback = (abs(chance.choice(NEAR)) for _ in range(2))
            frames = framed(message, number, callback)
            for _ in range(chance.choice((0, 1, 1, 2, 4))):
                frames = _changed(chance, frames)
        if origin:
            frames.insert(0, chance.choice((b"", b"", b"c", b"cnobody", b"\0" * 300)))
        yield frames


def _changed(chance: random.Random, frames: list[bytes]) -> list[bytes]:
    frames = list(frames)
    place = chance.randrange(len(frames))
    frame = frames[place]
    kind = chance.randrange(8)
    if kind == 0:
        frames[place] = frame[: chance.randrange(len(frame) + 1)]
    elif kind == 1 and frame:
        at = chance.randrange(len(frame))
        frames[place] = frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
    elif kind == 2:
        frames.insert(place, chance.choice((b"", b"x" * 100, frame)))
    elif kind == 3:
        del frames[place]
        frames = frames or [b""]
    else:
        head, end, rest = frames[0].partition(b"\r\n\r\n")
        words = head.split(b" ")
        at = chance.randrange(len(words))
        name, equals, _ = words[at].partition(b"=")
        words[at : at + 1] = chance.choice(
            (
                [name + equals + b"%d" % chance.choice(NEAR)],
                [chance.choice(WORDS)],
                [words[at], words[at]],
                [words[at], chance.choice(WORDS)],
                [],
                [words[at]] * 60,
            )
        )
        frames[0] = b" ".join(words).replace(b"!v=1", b"!v=2" if kind == 4 else b"!v=1") + end + rest
    return frames


GREETING: Final = b"\xff" + bytes(8) + b"\x7f\3\0NULL".ljust(24, b"\0") + bytes(31)
"""ZeroMQ's, of which the last 31 bytes are filler: with it a connection is one."""


def raw(endpoint: str, *, ready: bool = False) -> socket.socket:
    """A TCP connection; `ready`: one that has shaken hands as ZeroMQ."""
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    sock = socket.create_connection((host, int(port)), 30)
    if ready:
        known = b"\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\4" + b"\1" + random.randbytes(3)
        sock.sendall(GREETING + b"\4" + bytes([len(known)]) + known)
        heard = b""
        while b"READY" not in heard:
            heard += sock.recv(4096)
    return sock


def in_thread(function: Callable[[], object]) -> threading.Thread:
    """Runs beside the test; a daemon."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
