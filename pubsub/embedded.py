"""A proxy and a server on threads of this process: for tests, and for programs that need no more."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import zmq

from pubsub.client.aio import AsyncClient
from pubsub.client.client import Client
from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess

STOP_SECONDS: Final = 10.0
_numbers = itertools.count(1)


class _Process(Protocol):
    def start(self) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Embedded:
    """A running proxy and server.

    Attributes:
        proxies: the addresses that a client of this process connects to; they need `context`.
        context: the ZeroMQ context that they share.
        directory: where all state lives.
    """

    def __init__(self, directory: Path, proxies: tuple[str, ...], context: zmq.Context[Any]) -> None:
        self.directory, self.proxies, self.context = directory, proxies, context

    def client(self, name: str, **options: Any) -> Client:
        """A client of it; its state is beside the server's unless `directory` is named. Options are `Client`'s."""
        return Client(name, **self._options(name, options))

    def async_client(self, name: str, **options: Any) -> AsyncClient:
        """A client for asyncio; options as for `client`."""
        return AsyncClient(name, **self._options(name, options))

    def _options(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"proxies": self.proxies, "context": self.context, "directory": self.directory / "clients"} | options


@contextmanager
def embedded(
    directory: Path | str | None = None,
    *,
    proxy: Callable[[ProxySettings], ProxySettings] = lambda settings: settings,
    server: Callable[[ServerSettings], ServerSettings] = lambda settings: settings,
) -> Iterator[Embedded]:
    """A proxy and a server on threads, over `inproc://`, for the time of a `with` block.

    Args:
        directory: where their state lives, and stays; None: a temporary one, which goes with the block.
        proxy, server: change the settings that they are about to start with.

    Raises:
        StorageError: the directory is in use or damaged.
    """
    number = next(_numbers)
    clients, servers = f"inproc://pubsub-{number}-clients", f"inproc://pubsub-{number}-servers"
    with ExitStack() as stack:
        if directory is None:
            folder = Path(tempfile.mkdtemp(prefix="pubsub-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        else:
            folder = Path(directory)
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
        _run(stack, ProxyProcess(proxy(chosen_proxy), context=context), "proxy")
        _run(stack, ServerProcess(server(chosen_server), context=context), "server")
        yield Embedded(folder, (clients,), context)


def _run(stack: ExitStack, process: _Process, name: str) -> None:
    process.start()
    thread = threading.Thread(target=process.run, name=f"pubsub-{name}", daemon=True)

    def stop() -> None:
        process.stop()
        thread.join(STOP_SECONDS)
        process.close()

    thread.start()
    stack.callback(stop)
