"""A proxy and a server on threads of this process: for tests, and for programs that need no more."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar
from weakref import WeakSet

import zmq

from pubsub.base import forks
from pubsub.client.aio import AsyncClient
from pubsub.client.client import Client
from pubsub.config.settings import ClientSettings, ProxySettings, ServerSettings
from pubsub.errors import AfterFork, CallerError, PubsubError
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess

STOP_SECONDS: Final = 10.0
S = TypeVar("S", ProxySettings, ServerSettings)
_numbers = itertools.count(1)


class _Process(Protocol):
    def start(self) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Embedded:
    """A running proxy and server; made by `embedded`, and over at the end of its `with` block or by `close`.

    Args:
        directory: where all state lives.
        proxy, server: change the settings that they are about to start with.

    Attributes:
        proxies: the addresses that a client of this process connects to; they exist in `context` only.
        context: the ZeroMQ context that they share.
        directory: where all state lives.

    Raises:
        StorageError: the directory is in use or damaged.
    """

    def __init__(
        self,
        directory: Path | None,
        proxy: Callable[[ProxySettings], ProxySettings],
        server: Callable[[ServerSettings], ServerSettings],
    ) -> None:
        number = next(_numbers)
        clients, servers = f"inproc://pubsub-{number}-clients", f"inproc://pubsub-{number}-servers"
        self._inherited: AfterFork | None = None
        self._clients: WeakSet[Client | AsyncClient] = WeakSet()
        with ExitStack() as stack:
            if directory is None:
                folder = Path(tempfile.mkdtemp(prefix="pubsub-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            else:
                folder = directory
            context: zmq.Context[Any] = zmq.Context()
            stack.callback(context.destroy, 0)
            fresh = not (folder / "proxy").exists()
            chosen_proxy = ProxySettings(
                id="p1",
                bind=clients,
                servers=servers,
                directory=folder / "proxy",
                startup_wait_seconds=0.0 if fresh else None,  # In an empty directory there is no owner to wait for.
            )
            chosen_server = ServerSettings(
                id="s1", bind=f"inproc://pubsub-{number}-s1", proxies=(servers,), directory=folder / "server"
            )
            chosen_proxy = _changed("proxy", proxy, chosen_proxy)
            chosen_server = _changed("server", server, chosen_server)
            running = ProxyProcess(chosen_proxy, context=context)
            _run(stack, running, "proxy")
            owner = ServerProcess(chosen_server, context=context)
            _run(stack, owner, "server")
            self._processes: tuple[_Process, ...] = (running, owner)
            self._stack = stack.pop_all()
        self._closed = False
        self.directory, self.proxies, self.context = folder, (clients,), context
        forks.watch(self)

    def client(self, name: str, **options: Any) -> Client:
        """A client of it; its state is beside the server's unless `directory` is named. Options are `Client`'s.

        What is set neither here nor by `settings` has its default: environment and configuration file say nothing.
        """
        opened = Client(name, **self._options(options))
        self._clients.add(opened)
        return opened

    def async_client(self, name: str, **options: Any) -> AsyncClient:
        """A client for asyncio; options as for `client`."""
        opened = AsyncClient(name, **self._options(options))
        self._clients.add(opened)
        return opened

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        if self._inherited is not None:
            raise self._inherited
        if self._closed:
            raise CallerError("the embedded cluster is closed")
        settings = {"settings": ClientSettings()} if options.get("settings") is None else {}
        return {"proxies": self.proxies, "context": self.context, "directory": self.directory / "clients"} | (
            options | settings
        )

    def close(self) -> None:
        """End the clients made here that are still open, the server and the proxy. More than once is fine."""
        if self._closed:
            return
        self._closed = True
        for client in tuple(self._clients):
            with suppress(PubsubError):
                client._calls.close(0.0)
        self._stack.close()

    def forked(self, parent: int) -> None:
        """This is a child of the process that opened it: it makes no client, and leaves everything to the parent."""
        self._inherited, self._closed = AfterFork("the embedded cluster", parent), True
        self._stack.pop_all()
        for process in self._processes:
            forks.keep(process)

    def __reduce__(self) -> NoReturn:
        forks.no_pickling("an embedded cluster")

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or sys.is_finalizing():
            return
        try:
            warnings.warn(
                f"the embedded cluster in {self.directory} was not closed: use it in a with block, or call close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        finally:
            self.close()


def embedded(
    directory: Path | str | None = None,
    *,
    proxy: Callable[[ProxySettings], ProxySettings] = lambda settings: settings,
    server: Callable[[ServerSettings], ServerSettings] = lambda settings: settings,
) -> Embedded:
    """Start a proxy and a server on threads, over `inproc://`; a context manager that ends them.

    Args:
        directory: where their state lives, and stays; None: a temporary one, which goes with the block.
        proxy, server: change the settings that they are about to start with.

    Raises:
        CallerError: an argument is of a wrong type, or what a function gives.
        SettingRefused: a setting is not allowed.
        StorageError: the directory is in use or damaged.
    """
    if directory is not None and not isinstance(directory, str | Path):
        raise CallerError(f"directory is a path, not {type(directory).__name__}")
    return Embedded(None if directory is None else Path(directory), proxy, server)


def _changed(name: str, change: Callable[[S], S], settings: S) -> S:
    """The settings that a caller's function makes of ours."""
    if not callable(change):
        raise CallerError(f"{name} is a function from settings to settings, not {type(change).__name__}")
    changed = change(settings)
    if type(changed) is not type(settings):
        raise CallerError(f"{name} gives a {type(settings).__name__}, not {type(changed).__name__}")
    return changed


def _run(stack: ExitStack, process: _Process, name: str) -> None:
    stack.callback(process.close)
    process.start()
    thread = threading.Thread(target=process.run, name=f"pubsub-{name}", daemon=True)
    thread.start()
    stack.callback(thread.join, STOP_SECONDS)
    stack.callback(process.stop)
