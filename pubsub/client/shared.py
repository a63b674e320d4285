"""What `Client` and `AsyncClient` share: how they are opened, and the calls that never wait for the service."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pubsub.base import forks
from pubsub.base.clock import SystemClock, sound_wall
from pubsub.base.open_files import check_files
from pubsub.base.patched import refuse_patched
from pubsub.client import leaving
from pubsub.client.arguments import (
    check_kind,
    check_path,
    check_proxies,
    check_seconds,
    check_surroundings,
    check_truth,
)
from pubsub.client.core.calling import CallState
from pubsub.client.dead_letters import DeadLetter, dead_letters
from pubsub.client.export import export_client
from pubsub.client.flows.calls import Calls
from pubsub.client.reopening import Reopening
from pubsub.client.session import Session
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Transaction
from pubsub.config.loading import load
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    import zmq

    from pubsub.base.clock import Clock
    from pubsub.client.storage.recorder import RecordSink
    from pubsub.security.opening import ClientKeys

ACKNOWLEDGE_SECONDS: Final = 0.2
"""How long `close` waits for the last acknowledgements to be answered."""


def make_settings(
    settings: ClientSettings | None,
    proxies: Sequence[str] | None,
    proxies_file: Path | str | None,
    directory: Path | str | None,
    power_safe: bool | None,
    timeout: float | None,
    key_file: Path | str | None = None,
) -> ClientSettings:
    """What a caller named; for the rest `settings`, and without these what commands would take.

    Raises:
        CallerError: an argument is of a wrong type.
        ConfigurationError: a value is not allowed, here or in the environment or the configuration file.
    """
    named: dict[str, Any] = {}
    if proxies is not None:
        named["proxies"] = list(check_proxies(proxies))
    if proxies_file is not None:
        if proxies is not None:
            raise CallerError("proxies and proxies_file both say where the proxies are; name one of them")
        named["proxies_file"] = check_path("proxies_file", proxies_file)
    if directory is not None:
        named["directory"] = check_path("directory", directory)
    if key_file is not None:
        named["key_file"] = check_path("key_file", key_file)
    if power_safe is not None:
        check_truth("power_safe", power_safe)
        named["power_safe"] = power_safe
    if timeout is not None:
        check_seconds("timeout", timeout)
        named["timeout_seconds"] = timeout
    if settings is None:
        return load(ClientSettings, named, origin="this program").settings
    check_kind("settings", settings, ClientSettings, "a ClientSettings")
    found = load(ClientSettings, named, environment={}, file=os.devnull, origin="this program").settings
    fields = {"proxies" if name == "proxies_file" else name for name in named}
    if proxies_file is not None or ("proxies" in fields and found.proxies != settings.proxies):
        fields.add("proxy_keys")  # Those of the settings are of other proxies.
    return replace(settings, **{name: getattr(found, name) for name in fields})


class ClientBase:
    """An open client, and what is done at once. Arguments as `Client`'s."""

    def __init__(
        self,
        name: str,
        *,
        proxies: Sequence[str] | None = None,
        proxies_file: Path | str | None = None,
        directory: Path | str | None = None,
        power_safe: bool | None = None,
        timeout: float | None = None,
        key_file: Path | str | None = None,
        settings: ClientSettings | None = None,
        recorder: RecordSink | Path | str | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        boot: str | None = None,
        keys: ClientKeys | None = None,
    ) -> None:
        refuse_patched("a client")
        check_files()
        check_surroundings(recorder, clock, random, boot)
        sound_wall((clock or SystemClock()).wall())
        made = make_settings(settings, proxies, proxies_file, directory, power_safe, timeout, key_file)
        options: dict[str, Any] = {"context": context, "clock": clock, "random": random, "boot": boot, "keys": keys}
        opened: list[Session] = []
        try:
            self._held = Reopening(partial(Session, name, made, **options, record=recorder), self._opened, opened)
        except BaseException:
            for session in opened:  # Also one that was struck when all of it was open, and that nobody has.
                session.give_up()
            raise

    @staticmethod
    def _opened(calls: Calls) -> Any:
        """Add to the calls of a session everything that only this kind of client has."""

    @property
    def _calls(self) -> Calls:
        return self._held.current()

    @property
    def _session(self) -> Session:
        return self._held.current().session

    @property
    def name(self) -> str:
        """The client ID."""
        return self._held.calls.session.name

    @property
    def settings(self) -> ClientSettings:
        """What it may do."""
        return self._held.calls.session.settings

    @property
    def path(self) -> Path:
        """The file of its state."""
        return Path(self._held.calls.session.store.path)

    @property
    def record_problem(self) -> str:
        """Why the record lacks something at present; "" where it does not, or there is none."""
        recorder = self._held.calls.session.recorder
        return "" if recorder is None else recorder.problem

    @property
    def publisher_id(self) -> str:
        """Who its messages come from, as subscribers see it: `client ID/store ID`."""
        return f"{self._session.name}/{self._session.core.publisher}"

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic; those in doubt may have been taken all the same.

        Args:
            topic: `$calls.NAME` for calls of a service: waiting for their replies ends by `CallDiscarded`.

        Returns:
            How many messages those were.
        """
        return guarded(self._session, self._calls.discard, topic)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One commit of the client's database around a `with` block: rows of the caller's own, and any number of puts.

        Either all of it happens, once, or, where the block raises or the process ends, none. It is fsynced before any
        of its puts is sent. Other threads wait; the block must not call this client but for
        `put(…, transaction=…)` and `put_many(…, transaction=…)`, and await nothing else where it is `AsyncClient`'s.
        """
        return self._calls.puts.transaction()

    def unfinished(self, topic: str) -> int:
        """How many messages on a topic are put and not known to be on the server's disk."""
        return guarded(self._session, self._calls.puts.unfinished, topic)

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        """By topic: `on`, whether it is wanted; `settled`, whether the service confirmed that; `position`."""
        return guarded(self._session, self._calls.subscribing.subscriptions)

    def dead_letters(self, topic: str | None = None) -> list[DeadLetter]:
        """Messages that a handler failed on too often, and ranges that were lost; of one topic or of all."""
        return guarded(self._session, dead_letters, self._session, topic)

    def calls(self) -> list[CallState]:
        """The calls that are kept, oldest first: those that wait, and those whose replies have come."""
        return guarded(self._session, self._calls.calling.calls)

    def forget(self, call: str) -> None:
        """Keep a call no more; a reply that comes later is dropped, and its ID may be another call's.

        Raises:
            NoSuchCall: none of that ID is kept.
        """
        guarded(self._session, self._calls.calling.forget, call)

    def export(self, directory: Path | str) -> Path:
        """Write the state as files, `client_{id}/{topic}/last_get_id|last_put_counter`; the directory of the client.

        The layout is that of Pires et al., section 5.1.

        Raises:
            CallerError: it is there already, or cannot be written.
            StorageError: the disk is full or fails.
        """
        return guarded(self._session, export_client, self._session, check_path("directory", directory))

    def renew(self, *, keep: bool = True) -> None:
        """Make a state directory that was copied usable again: as another publisher, subscribed anew.

        Args:
            keep: the unfinished puts, which may be on the server already; False: discard them.
        """
        guarded(self._session, self._calls.renew, keep=keep)

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        leaving.collected(None if held is None else held.calls)

    def __reduce__(self) -> NoReturn:
        forks.no_pickling(f"client {self.name}")
