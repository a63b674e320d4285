"""What a session is made of when it is opened: its arguments are checked, and its core is loaded from the store."""

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
from pubsub.client.core.core import ClientCore, CoreSettings
from pubsub.client.core.numbers import Numbers
from pubsub.client.storage.places import key_path
from pubsub.client.storage.store import Store
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError, ConfigurationError
from pubsub.messenger.sockets import other_context

if TYPE_CHECKING:
    from pubsub.client.storage.recorder import RecordSink
    from pubsub.messenger import Messenger
    from pubsub.security.opening import ClientKeys

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_AWAITED: Final = frozenset({"zmq.asyncio", "zmq.green.core", "zmq.green"})
"""Modules whose sockets do not answer when they are called."""


class Opening:
    """What has been opened for a session, before anything else has it.

    Attributes:
        stores: the store; messenger: what it sends by; sink: where the record goes, if that is ours to close.
        complete: the session has all of it, and releases it.
    """

    def __init__(self) -> None:
        self.stores: list[Store] = []
        self.messenger: Messenger | None = None
        self.sink: RecordSink | None = None
        self.complete = False

    def open_sink(self, record: RecordSink | Path | str | None) -> RecordSink | None:
        """Where the record goes; None: there is none."""
        sink, owned = open_sink(record)
        self.sink = sink if owned else None
        return sink

    def release(self) -> None:
        """Close what is open. More than once is fine."""
        if self.messenger is not None:
            self.messenger.recover()
            self.messenger.close()
        for store in self.stores:
            store.close(clean=False)
        if self.sink is not None:
            self.sink.close()


def boot_id() -> str:
    """Which start of the operating system this is; "" where that cannot be known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def check_proxies(proxies: Sequence[str]) -> None:
    """See that their number is allowed.

    Raises:
        ConfigurationError: it is not.
    """
    if not 0 < len(proxies) <= PROXIES_MAX:
        raise ConfigurationError(f"a client needs 1 to {PROXIES_MAX} proxies; {len(proxies)} are named")


def check_context(context: object, proxies: Sequence[str]) -> None:
    """See that a context can be used, and the proxies be reached with it.

    Raises:
        CallerError, ConfigurationError: not so.
    """
    if context is None:
        elsewhere = [proxy for proxy in proxies if proxy.startswith("inproc://")]
        if elsewhere:
            raise ConfigurationError(other_context(elsewhere[0]))
    elif not isinstance(context, zmq.Context) or type(context).__module__ in _AWAITED:
        kind = f"{type(context).__module__}.{type(context).__qualname__}"
        raise CallerError(f"context is a zmq.Context, not {kind}; an AsyncClient takes the same")


def find_keys(name: str, settings: ClientSettings) -> ClientKeys | None:
    """The keys of a client, as its settings name them; None where it has none.

    Raises:
        ConfigurationError: its key file cannot be used, or it has a key and its proxies have none, or they alone have.
    """
    usual = key_path(name, settings.directory)
    if settings.key_file is None and not settings.proxy_keys and not os.path.lexists(usual):
        return None
    from pubsub.security import opening  # noqa: PLC0415 - where there are no keys nothing of it is needed.

    proxies, keys = settings.proxies, settings.proxy_keys
    return opening.find_client_keys("client", name, settings.key_file, usual, proxies, keys)


def open_sink(record: RecordSink | Path | str | None) -> tuple[RecordSink | None, bool]:
    """Where the record goes, and whether it is ours to close."""
    if not isinstance(record, Path | str):
        return record, False
    from pubsub.client.storage.recorder import open_record  # noqa: PLC0415 - most clients have none.

    return open_record(record), True


def load_core(
    name: str,
    settings: ClientSettings,
    store: Store,
    clock: Clock,
    random: Random,
    known: Mapping[int, Row] = MappingProxyType({}),
) -> ClientCore:
    """The core of a client with what its store holds.

    Args:
        name: the client ID.
        settings: what it may do.
        store: opened.
        clock: where the time comes from.
        random: where numbers start.
        known: by counter, rows that stand for those of the store.

    Raises:
        StorageError: new numbers could not be made durable.
    """
    used = store.known_milliseconds()
    numbers = Numbers(used[-1], clock.wall, random, store.save_milliseconds, used)
    core = ClientCore(
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
        ),
        numbers,
        store.state("cuts"),
        store.taken,
        clock.wall,
    )
    core.outbox.load(store.chains(), store.rows(), known)
    core.load_subscriptions(store.subscriptions())
    core.load_starts(store.starts())
    core.load_losses(store.untold())
    return core
