"""Run a cluster with keys on threads: proxies with different access lists, and a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pubsub.client import AsyncClient, Client
from pubsub.config import ClientSettings, ProxySettings, ServerSettings
from pubsub.proxy.process import ProxyProcess
from pubsub.security.authorized import parse
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair
from pubsub.security.process_keys import ClientKeys, InMemory, ProcessKeys
from pubsub.server.process import ServerProcess

SECONDS = 20.0
LOCALHOST = "tcp://127.0.0.1:0"


@cache
def pair(name: str) -> Pair:
    """Return the key pair of a name: the same each time."""
    return new_pair()


def public(name: str) -> str:
    return format_public(pair(name).public)


def line(role: str, name: str, *rights: str, key: str = "") -> str:
    """Build a line of the access list."""
    return " ".join([role, name, public(key or name), *rights])


SERVER = line("server", "s1")
EVERYTHING = line("client", "alice", "put=*", "get=*")
BOB = line("client", "bob", "put=*", "get=*")


def source(*lines: str) -> InMemory:
    return InMemory(parse("".join(f"{one}\n" for one in (SERVER, *lines)).encode()))


def wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Poll until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.002)


class Proxy:
    """One proxy, with or without a key."""

    def __init__(
        self, directory: Path, name: str, *lines: str, bind: str = LOCALHOST, servers: str = LOCALHOST, key: str = ""
    ) -> None:
        self.name, self.directory, self.key = name, directory, key or name
        self.source = source(*lines)
        keys = None if key == "none" else ProcessKeys(pair(self.key), self.source)
        directory.mkdir(exist_ok=True)
        settings = ProxySettings(
            id=name, bind=bind, servers=servers, directory=directory / name, startup_wait_seconds=0
        )
        self.process = ProxyProcess(settings, keys=keys)
        self.process.start()
        self.thread = threading.Thread(target=self.process.run, name=name)
        self.thread.start()

    @property
    def address(self) -> str:
        return self.process.bind

    def authorize(self, *lines: str) -> None:
        """Replace the access list; the proxy uses it when this returns."""
        self.source.authorized = source(*lines).authorized
        self.process.hang_up()
        wait_until(lambda: not self.source.changed())

    def count(self, name: str) -> int:
        """Return a counter of connections or denials."""
        access = self.process._access
        assert access is not None
        return int(access.authorizer.access.counters[name] or access.authorizer.counters[name])

    def stop(self) -> None:
        self.process.stop()
        self.thread.join()
        self.process.close()


class Keyed:
    def __init__(self, directory: Path, proxies: int = 1) -> None:
        self.directory = directory
        self.proxies = [Proxy(directory, f"p{number + 1}", EVERYTHING, BOB) for number in range(proxies)]
        settings = ServerSettings(
            id="s1",
            proxies=tuple(proxy.process.servers for proxy in self.proxies),
            proxy_keys=tuple(public(proxy.key) for proxy in self.proxies),
            directory=directory / "s1",
        )
        self.server = ServerProcess(settings, keys=ProcessKeys(pair("s1"), source()))
        self.server.start()
        self.thread = threading.Thread(target=self.server.run, name="s1")
        self.thread.start()

    @property
    def proxy(self) -> Proxy:
        return self.proxies[0]

    def authorize(self, *lines: str) -> None:
        """Replace the access list of every proxy."""
        for proxy in self.proxies:
            proxy.authorize(*lines)

    def settings(self, **named: Any) -> dict[str, Any]:
        """The settings of a client, without its keys."""
        addresses = tuple(proxy.address for proxy in self.proxies)
        named = {"proxies": addresses, "directory": self.directory / "clients", "timeout_seconds": SECONDS} | named
        return {"settings": ClientSettings(**named)}

    def keys(self, name: str, key: str = "") -> ClientKeys:
        return ClientKeys(pair(key or name), tuple((pair(proxy.key).public,) for proxy in self.proxies))

    def client(self, name: str = "alice", *, key: str = "", **named: Any) -> Client:
        """Open a client with the key of its own name, or with another key."""
        return Client(name, keys=self.keys(name, key), **self.settings(**named))

    def async_client(self, name: str = "alice", *, key: str = "", **named: Any) -> AsyncClient:
        return AsyncClient(name, keys=self.keys(name, key), **self.settings(**named))

    def close(self) -> None:
        self.server.stop()
        self.thread.join()
        self.server.close()
        for proxy in self.proxies:
            proxy.stop()


@contextmanager
def keyed(directory: Path, proxies: int = 1) -> Iterator[Keyed]:
    cluster = Keyed(directory, proxies)
    try:
        yield cluster
    finally:
        cluster.close()
