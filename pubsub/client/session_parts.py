"""Check the arguments of a session at its opening, and load its core from the store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import zmq

from pubsub.base.clock import Clock
from pubsub.base.limits import PROXIES_MAX
from pubsub.client.core.chain import Row
from pubsub.client.core.core import CoreSettings
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.waiting import Retry, Waiting, seconds_left
from pubsub.client.storage.interface import ClientStore
from pubsub.client.storage.places import key_path, state_path
from pubsub.client.storage.postgres import require_psycopg
from pubsub.client.storage.store import Store
from pubsub.config.databases import DatabaseUrl
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError, ConfigurationError
from pubsub.messenger.sockets import other_context

if TYPE_CHECKING:
    from pubsub.client.storage.recorder import RecordSink
    from pubsub.messenger import Messenger
    from pubsub.security.process_keys import ClientKeys

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_AWAITED: Final = frozenset({"zmq.asyncio", "zmq.green.core", "zmq.green"})
"""Modules with socket classes that return before they have an answer."""


class SessionParts:
    """The open resources of a session that is not complete yet.

    Attributes:
        stores: its store.
        messenger: its Messenger.
        sink: the sink of its record, if the client must close it.
        complete: True once the session has all of them and releases them itself.
    """

    def __init__(self) -> None:
        self.stores: list[ClientStore] = []
        self.messenger: Messenger | None = None
        self.sink: RecordSink | None = None
        self.complete = False

    def open_sink(self, record: RecordSink | Path | str | None) -> RecordSink | None:
        """Open the sink of the record; None if there is no record."""
        sink, owned = open_sink(record)
        self.sink = sink if owned else None
        return sink

    def release(self) -> None:
        """Close all open resources. A second call does nothing."""
        if self.messenger is not None:
            self.messenger.recover()
            self.messenger.close()
        for store in self.stores:
            store.close(clean=False)
        if self.sink is not None:
            self.sink.close()


def boot_id() -> str:
    """Return the ID of this start of the operating system; "" if unknown."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def check_proxies(proxies: Sequence[str]) -> None:
    """Check the number of proxies.

    Raises:
        ConfigurationError: it is not allowed.
    """
    if not 0 < len(proxies) <= PROXIES_MAX:
        raise ConfigurationError(f"a client needs 1 to {PROXIES_MAX} proxies; {len(proxies)} are named")


def check_context(context: object, proxies: Sequence[str]) -> None:
    """Check that a context can be used and can reach the proxies.

    Raises:
        CallerError: it is not a plain `zmq.Context`.
        ConfigurationError: an `inproc://` address needs a context.
    """
    if context is None:
        elsewhere = [proxy for proxy in proxies if proxy.startswith("inproc://")]
        if elsewhere:
            raise ConfigurationError(other_context(elsewhere[0]))
    elif not isinstance(context, zmq.Context) or type(context).__module__ in _AWAITED:
        kind = f"{type(context).__module__}.{type(context).__qualname__}"
        raise CallerError(f"context is a zmq.Context, not {kind}; an AsyncClient takes the same")


def find_keys(name: str, settings: ClientSettings) -> ClientKeys | None:
    """Return the keys of a client from its settings; None if it has none.

    Raises:
        ConfigurationError: the key file cannot be used, or only one of client and proxies has keys.
    """
    usual = key_path(name, settings.directory)
    if settings.key_file is None and not settings.proxy_keys and not os.path.lexists(usual):
        return None
    from pubsub.security import process_keys  # noqa: PLC0415 - only a client with keys needs it.

    proxies, keys = settings.proxies, settings.proxy_keys
    return process_keys.find_client_keys("client", name, settings.key_file, usual, proxies, keys)


def open_sink(record: RecordSink | Path | str | None) -> tuple[RecordSink | None, bool]:
    """Return the sink of the record, and True if the client must close it."""
    if not isinstance(record, Path | str):
        return record, False
    from pubsub.client.storage.recorder import open_record  # noqa: PLC0415 - most clients have none.

    return open_record(record), True


def open_store(
    name: str, settings: ClientSettings, boot: str, vfs: str | None, opened: list[ClientStore]
) -> ClientStore:
    """Open the state of a client.

    Args:
        boot: identifies this start of the operating system; "" if unknown.
        vfs: SQLite's file system, if it is not the machine's.
        opened: gets the store before it is open, for a caller that an exception interrupts before it has the store.

    Raises:
        StorageError: it cannot be used.
    """
    if settings.database is not None:
        return open_database(name, DatabaseUrl(settings.database), settings.timeout_seconds, opened)
    path = state_path(name, settings.directory)
    return Store(path, boot, power_safe=settings.power_safe, vfs=vfs, opened=opened)


def open_database(name: str, url: DatabaseUrl, seconds: float, opened: list[ClientStore]) -> ClientStore:
    """Open the state of a client in a PostgreSQL database; arguments as for `PostgresStore`.

    Raises:
        ConfigurationError: psycopg is not installed, or the database cannot be used.
        StorageError: the database cannot be used.
    """
    require_psycopg()
    from pubsub.client.storage.postgres.store import PostgresStore  # noqa: PLC0415 - most clients have a file.

    return PostgresStore(name, url, seconds=seconds, opened=opened)


def load_core(
    name: str,
    settings: ClientSettings,
    store: ClientStore,
    clock: Clock,
    random: Random,
    known: Mapping[int, Row] = MappingProxyType({}),
) -> GroupCore:
    """Build the core of a client from its store.

    Args:
        known: by counter, existing rows to use in place of the store's.

    Raises:
        StorageError: new numbers could not be made durable.
    """
    used = store.known_milliseconds()
    numbers = Numbers(used[-1], clock.wall, random, store.save_milliseconds, used)
    core = GroupCore(
        CoreSettings(
            client=name,
            path=store.path,
            publisher=store.state("store"),
            proxies=len(settings.proxies),
            tries=settings.tries,
            try_seconds=settings.try_seconds,
            window=settings.window,
            outbox_bytes_max=settings.outbox_bytes_max,
            prefetch_records=settings.prefetch_records,
            prefetch_bytes=settings.prefetch_bytes,
            database=store.database,
        ),
        numbers,
        store.state("cuts"),
        store.taken,
        clock.wall,
    )
    if store.database:  # A directory has one process. The life of this one in a database may be over.
        core.check_life = store.sync
    core.outbox.load(store.chains(), store.rows(), known)
    core.load_subscriptions(store.subscriptions())
    core.load_starts(store.starts())
    for topic, number in store.replays():
        core.subscription(topic).intent.replay = number
    core.load_losses(store.untold())
    core.families.load(store.patterns(), store.joined())
    load_waiting(core, store, clock)
    for member in core.load_groups(store.groups()):
        core.load_group_work(member, store.group_done(member.member), store.group_begun(member.member))
    return core


def load_waiting(core: GroupCore, store: ClientStore, clock: Clock) -> None:
    """Load the messages that wait for their next attempt, with the rest of each wait."""
    now, wall = clock.monotonic(), clock.wall()
    for topic, position, due, seconds, later in store.retries():
        sub = core.subscriptions.get(topic)
        if sub is not None and sub.cursor.tried == position:
            sub.cursor.retry = Retry(position, now + seconds_left(due, seconds, wall), later)
    for number, topic, lane, size, attempts, later, due, seconds in store.waiting():
        core.waiting.add(Waiting(number, topic, lane, size, attempts, later, now + seconds_left(due, seconds, wall)))
