"""The acts of a hostile peer on a port, and the check that others still get their service."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from zlib import crc32

import pytest
import zmq

from pubsub.cli.reports import gather
from pubsub.config.settings import ClientSettings
from pubsub.messenger.curve import CurveClient, lock_dealer
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer
from pubsub.protocol import Message, Status, decode, encode
from pubsub.protocol import messages as m
from pubsub.protocol.batch import encode_batch
from pubsub.protocol.names import parse_endpoint
from pubsub.protocol.train import join_table
from pubsub.security.authorized import Role
from pubsub.security.files import read_authorized, read_key_file
from pubsub.security.keys import parse_public
from pubsub.security.pairs import Pair, new_pair, pair_of
from tests.faults.cluster import Cluster, Process, until

MIB: Final = 1024 * 1024
LOG: Final = "0123456789abcdef"
PAUSE_SECONDS: Final = 0.02
REPEAT_SECONDS: Final = 2.0
PORTS: Final = ("clients", "servers", "other servers")

KEYS: Final = (pytest.param(False, marks=pytest.mark.nightly), True)
"""Whether a town has keys: parameters of a fixture. Each limit holds with keys and without; a handshake has more."""


def with_keys(keys: bool) -> str:
    """The name of a test of such a town."""
    return "with keys" if keys else "without keys"


class Well:
    """A client that puts and gets all the time, on a thread of its own: its messages come back once, in order.

    A call that fails, or a message that is not the next one, ends it; `served` then says so. Unless `served` waits, it
    pauses between rounds, because it would take every processor from the processes under test.
    """

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self._client = cluster.client(name)
        self._topic = topic
        self._client.subscribe(topic)
        self.rounds = 0
        self.error: BaseException | None = None
        self._stopping = False
        self._hurried = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._hurried.wait(PAUSE_SECONDS)
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

        self._hurried.set()
        try:
            until(done, "the well-behaved client is served")
        finally:
            self._hurried.clear()

    def stop(self) -> None:
        """After the round it is in."""
        self._stopping = True
        self._thread.join(120)
        assert not self._thread.is_alive()


class Town:
    """A proxy, two servers, and a client that behaves well.

    Where it has keys so have the hostile ones: any client's, and that of a server called eve.

    Attributes:
        well: the client.
    """

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        if cluster.keys is not None:
            cluster.keys.options("server", "eve")
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
        return parse_endpoint(self.process(self.owner).ready().split()[-1])[1]

    def curve(self, port: str, pair: Pair | None = None) -> CurveClient | None:
        """How to enter at a port; None: anybody does.

        Args:
            pair: by this key; None: by one that is authorized.
        """
        keys = self.cluster.keys
        if keys is None:
            return None
        if pair is None:
            path = keys.client if port == "clients" else keys.authorized.parent / "eve" / "key"
            pair = pair_of(read_key_file(path))
        if port == "other servers":
            return CurveClient(pair, read_authorized(keys.authorized).keys_of(Role.SERVER, self.owner))
        return CurveClient(pair, (parse_public(self.cluster.proxy_keys()[0]),))

    def peer(self, port: str, *, reads: bool = True) -> Peer:
        """One at a port that lets it in."""
        return Peer(self.endpoint(port), reads=reads, curve=self.curve(port))

    def hello(self, port: str) -> bytes:
        """The beginning of a handshake at a port with keys: the first command of a peer that knows its key."""
        curve = self.curve(port, new_pair())
        said = b""
        with socket.create_server(("127.0.0.1", 0)) as listening, zmq.Context() as context:
            sock = open_dealer(context, f"tcp://127.0.0.1:{listening.getsockname()[1]}", curve=curve)
            with listening.accept()[0] as heard:
                heard.settimeout(30)
                heard.sendall(CURVE_GREETING[:32] + b"\1" + CURVE_GREETING[33:])  # As the side that is bound does.
                while len(said) < len(CURVE_GREETING) + HELLO_BYTES:
                    said += heard.recv(4096)
            sock.close(0)
        return said

    def process(self, name: str) -> Process:
        """A server by its ID, or the proxy ("-")."""
        return next((server for server in self.cluster.servers if server.name == name), self.cluster.proxies[0])

    def behind(self, port: str) -> str:
        """The process with a report about a port."""
        return self.owner if port == "other servers" else "-"

    def counters(self, target: str) -> dict[str, int]:
        """The counts of a server or the proxy (`-`), as `pubsub status --json` shows it."""
        report = until(lambda: self._report(target), f"{target} reports")
        return {**report.get("keys", {}).get("counters", {}), **report["counters"]}

    def _report(self, target: str) -> dict[str, Any]:
        proxies = tuple(self.cluster.addresses)
        found = gather(ClientSettings(proxies=proxies, **self.cluster.key_settings()), 20.0)
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
    """A connection that sends any bytes; a context manager. With `curve` by a key."""

    def __init__(
        self,
        endpoint: str,
        *,
        reads: bool = True,
        curve: CurveClient | None = None,
        context: zmq.Context[Any] | None = None,
    ) -> None:
        self._own = context is None
        self._context: zmq.Context[Any] = context or zmq.Context()
        self.sock = open_dealer(self._context, endpoint, curve=curve)
        if not reads:
            self.sock.close(0)
            self.sock = self._context.socket(zmq.DEALER)
            self.sock.linger = 0
            self.sock.rcvhwm, self.sock.rcvbuf = 1, 4096
            lock_dealer(self.sock, endpoint, curve)
            self.sock.connect(endpoint)
        self.answers: dict[str, int] = {}
        self._succeeded: set[int] = set()
        self._fence = self._answered = 2**50
        self._confirming = self._repeated = 2**40

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.sock.close(0)
        if self._own:
            self._context.term()

    def send(self, frames: Sequence[bytes | memoryview], seconds: float = 120.0) -> None:
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
        """The answers so far, by outcome; other messages count as no answers."""
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
        if name == "success":
            self._succeeded.add(prefix.destination)
        self.answers[name] = self.answers.get(name, 0) + 1

    def until(self, condition: Callable[[], bool]) -> None:
        """Takes answers until it holds."""

        def done() -> bool:
            self.sock.poll(20)
            self.take()
            return condition()

        until(done, f"an answer is awaited; there are {self.answers}")

    def confirmed(self, message: Message) -> None:
        """Send a message until it succeeds: a proxy may drop a request, and a client repeats it then."""
        self._confirming += 1
        callback, due = self._confirming, 0.0

        def done() -> bool:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + REPEAT_SECONDS
                self._repeated += 1
                self.send(framed(message, self._repeated, callback))
            return callback in self._succeeded

        self.until(done)

    def until_answered(self, *outcomes: str) -> None:
        """At least one answer of each."""
        self.until(lambda: set(outcomes) <= self.answers.keys())

    def all_taken(self, port: str) -> None:
        """Wait until its messages are dealt with: messages are, in their order."""
        self._fence += 1
        last: dict[str, Message] = {
            "clients": m.Report("eve", "-"),
            "servers": m.Owners("eve"),
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


class _Row:
    """A put as a row of a train."""

    def __init__(self, one: m.Put) -> None:
        self.counter, self.previous, self.count, self.checksum = one.counter, one.previous, one.count, one.checksum
        self.size = len(one.body)


def train(rows: Sequence[m.Put], table: bytes | None = None, /, **changed: Any) -> m.Put:
    """A train of these puts.

    Args:
        table: in place of the one that tells of them.
        changed: fields of its header.
    """
    table = join_table([_Row(row) for row in rows]) if table is None else table
    first, count = rows[0], sum(row.count for row in rows)
    body = table + b"".join(bytes(row.body) for row in rows)
    made = replace(first, count=count, checksum=crc32(table), rows=len(rows), body=body)
    return replace(made, **changed)


GREETING: Final = b"\xff" + bytes(8) + b"\x7f\3\0NULL".ljust(24, b"\0") + bytes(31)
"""ZeroMQ's, of which the last 31 bytes are filler: with it a connection is one."""


CURVE_GREETING: Final = GREETING.replace(b"NULL\0", b"CURVE")

HELLO_BYTES: Final = 202
"""Of the first command of a handshake with keys, and the bytes in front of it."""


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
