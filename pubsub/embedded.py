"""Run a proxy and a server on threads of this process, for tests and for small programs.

Within the process, clients reach them by addresses that exist in one ZeroMQ context only, without keys. With an address
for other processes (`bind`), the proxy accepts only clients with an authorized key. These keys are made in memory, and
are invalid after the cluster ends.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import tempfile
import threading
import time
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
from pubsub.client.closing import disconnect
from pubsub.config.settings import ClientSettings, ProxySettings, ServerSettings
from pubsub.errors import AfterFork, CallerError, PubsubError
from pubsub.protocol.names import check_id
from pubsub.proxy.process import ProxyProcess
from pubsub.security.authorized import AUTHORIZED_LINES_MAX, EVERY_RIGHT, Authorized, Line, make_line, parse_name
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public, parse_public
from pubsub.security.pairs import Pair, new_pair
from pubsub.security.process_keys import ClientKeys, InMemory, ProcessKeys
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
    """A running proxy and server; made by `embedded`, and ended by its `with` block or by `close`.

    Args:
        directory: directory for all state; None: a temporary one.
        proxy, server: functions that change the settings before the start.
        bind: address for other processes; "": none.

    Attributes:
        proxies: addresses for clients; without `bind` they exist in `context` only.
        proxy_keys: public keys of the proxies, as text, in the same order; () without keys.
        context: the shared ZeroMQ context.
        directory: directory of all state.

    Raises:
        ConfigurationError: the address is in use or not valid.
        StorageError: the directory is in use or damaged.
    """

    def __init__(
        self,
        directory: Path | None,
        proxy: Callable[[ProxySettings], ProxySettings],
        server: Callable[[ServerSettings], ServerSettings],
        bind: str = "",
    ) -> None:
        number = next(_numbers)
        clients, servers = bind or f"inproc://pubsub-{number}-clients", f"inproc://pubsub-{number}-servers"
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
            self._keys = EmbeddedKeys() if bind else None
            running = ProxyProcess(
                chosen_proxy, context=context, keys=None if self._keys is None else self._keys.of_proxy()
            )
            _run(stack, running, "proxy")
            owner = ServerProcess(chosen_server, context=context)
            _run(stack, owner, "server")
            self._processes: tuple[_Process, ...] = (running, owner)
            if self._keys is not None:
                self._keys.reload = running.hang_up
            self._stack = stack.pop_all()
        self._closed = False
        self.directory, self.proxies, self.context = folder, (_reached(running.bind) if bind else clients,), context
        self.proxy_keys = () if self._keys is None else (format_public(self._keys.proxy.public),)
        forks.watch(self)

    def client(self, name: str, **options: Any) -> Client:
        """Open a client of this cluster.

        In a cluster with keys, the client gets a key with every right under its ID, unless `key_file` names one.
        Settings that are neither options nor in `settings` have their defaults: the environment and the configuration
        file are not read.

        Args:
            name: client ID.
            options: as for `Client`; the default of `directory` is beside the server's state.

        Returns:
            The open client, which `close` of the cluster closes too.

        Raises:
            CallerError: the cluster is closed.
            PubsubError: otherwise as `Client`.
        """
        opened = Client(name, **self._options(name, options))
        self._clients.add(opened)
        return opened

    def async_client(self, name: str, **options: Any) -> AsyncClient:
        """Open a client for asyncio; arguments, result and errors as `client`."""
        opened = AsyncClient(name, **self._options(name, options))
        self._clients.add(opened)
        return opened

    def _check_open(self) -> None:
        if self._inherited is not None:
            raise self._inherited
        if self._closed:
            raise CallerError("the embedded cluster is closed")

    def _options(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        self._check_open()
        settings = {"settings": ClientSettings()} if options.get("settings") is None else {}
        keys = {"keys": self._client_keys(name)} if self._keys is not None and options.get("key_file") is None else {}
        return {"proxies": self.proxies, "context": self.context, "directory": self.directory / "clients"} | (
            keys | options | settings
        )

    def authorize(self, name: str, key: str, *rights: str) -> None:
        """Accept a client in another process by its key. That client connects to `proxies`, and expects `proxy_keys`.

        Args:
            name: its client ID, or a pattern of IDs such as `worker-*`.
            key: its public key, `pk_…`.
            rights: as in the access list, such as `put=orders/*` or `status`; none: `put=*` and `get=*`. For a key that
                is accepted already, they replace its rights.

        Raises:
            CallerError: there is no `bind`, or an argument is not allowed.
        """
        try:
            role, pattern = parse_name("client", name)
            line = make_line(role, pattern, parse_public(key), list(rights or ("put=*", "get=*")))
        except ValueError as error:
            raise CallerError(str(error)) from None
        self._known_keys().add(line)

    def revoke(self, key: str) -> None:
        """Reject this public key from now on; its pending requests get no answer.

        Args:
            key: the public key, `pk_…`.

        Raises:
            CallerError: there is no `bind`.
            InvalidKey: the text is not a key.
        """
        self._known_keys().remove(parse_public(key))

    def key_file(self, name: str, *rights: str) -> Path:
        """Make and accept a key for a client in another process.

        Args:
            name: its client ID, without a key file yet.
            rights: as for `authorize`.

        Returns:
            The key file, under `directory`.

        Raises:
            CallerError: there is no `bind`, or an argument is not allowed.
            ConfigurationError: the file exists already, or cannot be made.
        """
        path, pair = self.directory / "keys" / f"{check_id('client ID', name)}.key", new_pair()
        self.authorize(name, format_public(pair.public), *rights)
        make_key_file(path, pair.secret)
        return path

    def _client_keys(self, name: str) -> ClientKeys:
        """Return the keys of a client in this process, which has every right under its own ID."""
        keys = self._known_keys()
        pair = keys.clients.get(name)
        if pair is None:
            pair = keys.clients[check_id("client ID", name)] = new_pair()
            keys.add(make_line(*parse_name("client", name), pair.public, list(EVERY_RIGHT)))
        return ClientKeys(pair, ((keys.proxy.public,),))

    def _known_keys(self) -> EmbeddedKeys:
        self._check_open()
        if self._keys is None:
            raise CallerError("this cluster accepts no other process; to change that, start it with embedded(bind=…)")
        return self._keys

    def close(self) -> None:
        """Close the clients made here, then the server and the proxy. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            for client in tuple(self._clients):
                with suppress(PubsubError):
                    client._held.calls.close(0.0)
        finally:  # Ctrl-C may interrupt the loop above, and a second `close` does nothing.
            for client in tuple(self._clients):
                disconnect(client._held.calls.session)  # No thread may be in a socket that ends with the context.
            self._stack.close()

    def forked(self, parent: int) -> None:
        """Make no clients in a child process, and leave everything to the parent."""
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


class EmbeddedKeys:
    """Keys in memory: the proxy's, those of clients in this process, and the access list.

    Attributes:
        proxy: the proxy's key pair.
        clients: key pairs of clients in this process, by ID.
        reload: makes the proxy read the access list again.
    """

    def __init__(self) -> None:
        self.proxy = new_pair()
        self.clients: dict[str, Pair] = {}
        self._source = InMemory(Authorized(()))
        self._changing = threading.Lock()
        self.reload: Callable[[], None] = lambda: None

    def of_proxy(self) -> ProcessKeys:
        """Return the proxy's key pair with the access list."""
        return ProcessKeys(self.proxy, self._source)

    def add(self, line: Line) -> None:
        """Accept a key, or replace the rights of an accepted key.

        Raises:
            CallerError: the access list has AUTHORIZED_LINES_MAX lines already.
        """
        with self._changing:
            lines = tuple(one for one in self._source.authorized.lines if one.key != line.key)
            if len(lines) >= AUTHORIZED_LINES_MAX:
                raise CallerError(f"AUTHORIZED_LINES_MAX = {AUTHORIZED_LINES_MAX:,} keys are accepted already")
            self._tell((*lines, line))

    def remove(self, key: bytes) -> None:
        """Reject a key from now on."""
        with self._changing:
            self._tell(tuple(one for one in self._source.authorized.lines if one.key != key))

    def _tell(self, lines: tuple[Line, ...]) -> None:
        """Change the access list, and return after the proxy has read it, so that a following handshake succeeds."""
        self._source.authorized = Authorized(lines)
        self.reload()
        deadline = time.monotonic() + STOP_SECONDS
        while self._source.changed() and time.monotonic() < deadline:
            time.sleep(0.001)


def embedded(
    directory: Path | str | None = None,
    *,
    bind: str | None = None,
    proxy: Callable[[ProxySettings], ProxySettings] = lambda settings: settings,
    server: Callable[[ServerSettings], ServerSettings] = lambda settings: settings,
) -> Embedded:
    """Start a proxy and a server on threads, over `inproc://`.

    Args:
        directory: directory for their state, which stays; None: a temporary one, removed at the end of the block.
        bind: address for clients in other processes, `tcp://127.0.0.1:0` (a free port) or `ipc://PATH`; clients then
            need an authorized key. None: clients in this process only.
        proxy, server: functions that change the settings before the start.

    Returns:
        A context manager that ends both.

    Raises:
        CallerError: an argument, or the result of a function, has a wrong type.
        SettingRefused: a setting is not allowed.
        ConfigurationError: the address is in use.
        StorageError: the directory is in use or damaged.
    """
    if directory is not None and not isinstance(directory, str | Path):
        raise CallerError(f"directory is a path, not {type(directory).__name__}")
    if bind is not None and (not isinstance(bind, str) or not bind.startswith(("tcp://", "ipc://"))):
        raise CallerError(f"bind is tcp://HOST:PORT or ipc://PATH, not {bind!r}")
    return Embedded(None if directory is None else Path(directory), proxy, server, bind or "")


def _reached(bound: str) -> str:
    """Return an address that this host can connect to, for an address that may listen on every interface."""
    return re.sub(r"^tcp://\[::\]", "tcp://[::1]", re.sub(r"^tcp://(\*|0\.0\.0\.0)", "tcp://127.0.0.1", bound))


def _changed(name: str, change: Callable[[S], S], settings: S) -> S:
    """Apply the caller's function to our settings, and check its result."""
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
