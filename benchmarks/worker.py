"""What runs in a process of its own while something is measured: `python -m benchmarks.worker ROLE ARGUMENTS`.

A worker says that it is ready, waits for a line on its standard input, works, and prints its result as one line of
JSON. Moments are `time.monotonic()`, which all processes of one machine share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import zmq

from pubsub.cli.bench import BATCH, END
from pubsub.errors import Unavailable

if TYPE_CHECKING:
    from pubsub.client import Client
    from pubsub.config.settings import ClientSettings


def open_client(where: dict[str, Any], directory: Path) -> Client:
    """A client that is called as its directory is.

    Args:
        where: how it reaches the cluster: settings by name (`Stage.where`).
        directory: of its state.
    """
    from pubsub.client import Client

    return Client(directory.name, settings=settings_in(where, directory))


def settings_in(where: dict[str, Any], directory: Path) -> ClientSettings:
    """The settings of a client that reaches the cluster; arguments as of `open_client`."""
    from pubsub.config.settings import ClientSettings

    return ClientSettings(**where, directory=directory)


def produce(
    say: Callable[[Any], None], where: dict[str, Any], directory: str, topic: str, size: int, secs: float
) -> Any:
    """Put at full speed, then END; when the first put began, and how many there were."""
    bodies = [bytes(size)] * BATCH
    with open_client(where, Path(directory)) as client:
        client.put(topic, b"first")
        say("ready")
        begun, records = time.monotonic(), 0
        while time.monotonic() < begun + secs:
            client.put_many(topic, bodies, wait=False)
            records += BATCH
        client.put(topic, END)
    return {"begun": begun, "records": records}


def consume(say: Callable[[Any], None], where: dict[str, Any], directory: str, topic: str, clients: int = 1) -> Any:
    """Take all up to END, as one or several subscribers; when the last of it was acknowledged, durably."""
    opened = [open_client(where, Path(directory) / f"{Path(directory).name}-{n}") for n in range(clients)]
    for client in opened:
        client.subscribe(topic)
    say("ready")
    begun, records, waiting = time.monotonic(), 0, list(opened)
    while waiting:
        for client in tuple(waiting):
            try:
                batch = client.get_many(topic, timeout=10.0 if len(waiting) == 1 else 0.05)
            except Unavailable:
                if len(waiting) == 1:
                    raise
                continue  # Under load nobody may have answered in so short a time: the others have their turn.
            records += len(batch)
            if batch and batch[-1].body == END:
                waiting.remove(client)
    for client in opened:
        client.close()
    return {"begun": begun, "ended": time.monotonic(), "records": records}


def steady(
    say: Callable[[Any], None],
    where: dict[str, Any],
    directory: str,
    topic: str,
    size: int,
    rate: int,
    batch: int = BATCH,
) -> Any:
    """Put at an even rate until told to stop; each body begins with the moment at which it is put."""
    poller = zmq.Poller()
    poller.register(sys.stdin, zmq.POLLIN)
    rest = bytes(max(0, size - 8))
    with open_client(where, Path(directory)) as client:
        client.put(topic, b"first")
        say("ready")
        begun = at = time.monotonic()
        records = 0
        while not poller.poll(max(0, int((at - time.monotonic()) * 1000))):
            time.sleep(max(0.0, at - time.monotonic()))
            body = time.monotonic_ns().to_bytes(8, "little") + rest
            client.put_many(topic, [body] * batch, wait=batch == 1)
            records += batch
            at += batch / rate
        taken = time.monotonic() - begun
    return {"rate": records / taken}


def echo(say: Callable[[Any], None], address: str) -> Any:
    """Answer every message with its head, and as many bytes as that says."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(address)
    dealer.send_multipart([b"", b"here"])
    say("ready")
    body = bytes(32 * 1024 * 1024)
    while True:
        client, head, *rest = dealer.recv_multipart(copy=False)
        wanted = int(head.bytes)
        answer = rest if wanted < 0 else [memoryview(body)[:wanted]]
        dealer.send_multipart([client, head, *answer], copy=wanted < 16_384)


def forward(say: Callable[[Any], None]) -> Any:
    """A forwarding proxy and nothing else: from clients to the one server there is, and back."""
    context = zmq.Context()
    clients, servers = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    clients.bind("tcp://127.0.0.1:0")
    servers.bind("tcp://127.0.0.1:0")
    say([sock.getsockopt_string(zmq.LAST_ENDPOINT) for sock in (clients, servers)])
    server = servers.recv_multipart()[0]
    poller = zmq.Poller()
    for sock in (clients, servers):
        poller.register(sock, zmq.POLLIN)
    while True:
        for ready, _ in poller.poll():
            for _ in range(64):
                try:
                    frames = ready.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                if ready is clients:
                    servers.send_multipart([server, *frames], copy=False)
                else:
                    clients.send_multipart(frames[1:], copy=False)


ROLES: Final[dict[str, Callable[..., Any]]] = {
    role.__name__: role for role in (produce, consume, steady, echo, forward)
}


class Worker:
    """A worker's process, as its parent sees it; a context manager that ends it.

    Args:
        role: of ROLES, or `module:function`.
        arguments: passed on.
    """

    def __init__(self, role: str, *arguments: Any) -> None:
        self.process = subprocess.Popen(  # noqa: S603  our own interpreter and our own program
            [sys.executable, "-m", __name__, role, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def said(self) -> Any:
        """The next thing it says; waits for it.

        Raises:
            RuntimeError: it ended instead; what it had to say is on stderr.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with exit code {self.process.wait()}")
        return json.loads(line)

    def go(self) -> None:
        """Have it begin, or end."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def _main(role: str, arguments: str) -> None:
    def say(word: Any) -> None:
        sys.stdout.write(json.dumps(word) + "\n")
        sys.stdout.flush()
        if word == "ready" and role not in {"echo"}:
            sys.stdin.readline()

    if ":" in role:
        import importlib

        module, _, function = role.partition(":")
        work: Callable[..., Any] = getattr(importlib.import_module(module), function)
    else:
        work = ROLES[role]
    say(work(say, *json.loads(arguments)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
