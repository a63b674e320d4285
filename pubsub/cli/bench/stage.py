"""The cluster under measurement: one proxy and one server, as processes in a directory of their own."""

from __future__ import annotations

import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pubsub.cli.cluster import Child, Cluster, listening
from pubsub.client import Client
from pubsub.config.addresses import ProxyAddress
from pubsub.config.settings import ClientSettings


class Stage:
    """A running cluster for one repetition of the measures; a context manager.

    Args:
        directory: made, and removed at the end.

    Attributes:
        proxy: address of the proxy.
        where: settings by name by which a client reaches it, as JSON can hold them.
        server: process of the server.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.proxy = ""
        self.where: dict[str, Any] = {}
        self._numbers = count(1)
        self._cluster: Cluster

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True)
        self._log = (self.directory / "log").open("wb")
        self._cluster = Cluster(errors=self._log)
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        self._cluster.__enter__()
        try:
            self._start_all()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        finally:
            for number, handler in before.items():  # A signal interrupts a measure at once, not only at its end.
                signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__()
        if kind is not None:
            sys.stderr.write((self.directory / "log").read_text(encoding="utf-8", errors="replace"))
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_all(self) -> None:
        self._start_server(["--proxy", self._start_proxy().servers])

    def _start_proxy(self) -> ProxyAddress:
        any_port = ("--bind", "tcp://127.0.0.1:0", "--servers", "tcp://127.0.0.1:0", "--startup-wait-seconds", "0")
        proxy = self._start("proxy", "p1", *any_port)
        self._cluster.wait_ready()
        address = listening(proxy)
        self.proxy, self.where = address.clients, {"proxies": [address.clients]}
        return address

    def _start_server(self, options: list[str]) -> None:
        self.server = self._start("server", "s1", *options)
        self._cluster.wait_ready()

    def _start(self, role: str, name: str, *options: str, of: str = "") -> Child:
        options += ("--dir", str(self.directory / name), *self._locks(role, name, of))
        return self._cluster.start(role, name, *options, of=of)

    def _locks(self, role: str, name: str, of: str) -> list[str]:
        """Options for keys: none, and the environment's keys of another cluster are ignored."""
        del role, name, of
        return ["--authorized", "none"]

    def name(self, word: str) -> str:
        """Return a topic or client name that is new on this stage."""
        return f"{word}{next(self._numbers)}"

    def client(self, word: str) -> Client:
        """Open a client with a new name."""
        name = self.name(word)
        return Client(name, settings=ClientSettings(**self.where, directory=self.directory / name))
