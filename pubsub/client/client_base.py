"""Share the opening, and the calls that never wait for the service, between `Client` and `AsyncClient`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pubsub.base import forks
from pubsub.base.clock import SystemClock, valid_wall
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
from pubsub.config.databases import DatabaseUrl
from pubsub.config.loading import load
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    import zmq

    from pubsub.base.clock import Clock
    from pubsub.client.look_back_calls import LookBackCalls
    from pubsub.client.relaying.beside import RelayBeside
    from pubsub.client.storage.recorder import RecordSink
    from pubsub.client.topic_objects import TopicCalls
    from pubsub.client.topic_settings import SettingsCalls
    from pubsub.security.process_keys import ClientKeys

ACKNOWLEDGE_SECONDS: Final = 0.2
"""Longest wait of `close` for answers to the last acknowledgements."""


def make_settings(
    settings: ClientSettings | None,
    proxies: Sequence[str] | None,
    proxies_file: Path | str | None,
    directory: Path | str | None,
    power_safe: bool | None,
    timeout: float | None,
    key_file: Path | str | None = None,
    dead_letters: str | None = None,
    database: str | None = None,
) -> ClientSettings:
    """Combine the caller's arguments, then `settings`, then the sources that commands use.

    The environment, the configuration file and the defaults count only without `settings`.

    Raises:
        CallerError: an argument has a wrong type.
        ConfigurationError: a value is not allowed, here or in the environment or the configuration file.
    """
    named: dict[str, Any] = {}
    if proxies is not None:
        named["proxies"] = list(check_proxies(proxies))
    if proxies_file is not None:
        if proxies is not None:
            raise CallerError("proxies and proxies_file both name the proxies; give only one of them")
        named["proxies_file"] = check_path("proxies_file", proxies_file)
    if directory is not None:
        named["directory"] = check_path("directory", directory)
    if key_file is not None:
        named["key_file"] = check_path("key_file", key_file)
    if power_safe is not None:
        check_truth("power_safe", power_safe)
        named["power_safe"] = power_safe
    if dead_letters is not None:
        named["dead_letters"] = dead_letters
    if database is not None:
        named["database"] = database
    if timeout is not None:
        check_seconds("timeout", timeout)
        named["timeout_seconds"] = timeout
    if settings is None:
        return load(ClientSettings, named, origin="this program").settings
    check_kind("settings", settings, ClientSettings, "a ClientSettings")
    found = load(ClientSettings, named, environment={}, file=os.devnull, origin="this program").settings
    fields = {"proxies" if name == "proxies_file" else name for name in named}
    if proxies_file is not None or ("proxies" in fields and found.proxies != settings.proxies):
        fields.add("proxy_keys")  # The keys in `settings` belong to other proxies.
    return replace(settings, **{name: getattr(found, name) for name in fields})


def start_relay(settings: ClientSettings, context: zmq.Context[Any] | None, clock: Clock | None) -> RelayBeside:
    """Start a relay on a thread of its own, as a client with an ID and a key of its own.

    Args:
        settings: those of the client beside it, with a database.

    Raises:
        ConfigurationError, StorageError: the database cannot be used, or has no tables for outgoing rows.
    """
    from pubsub.client.relaying.beside import RelayBeside  # noqa: PLC0415 - few clients have one.
    from pubsub.client.relaying.running import OpenedClient  # noqa: PLC0415

    own = replace(settings, key_file=None, record=None)

    def opened(name: str) -> OpenedClient:
        sessions: list[Session] = []
        try:
            held = Reopening(partial(Session, name, own, context=context, clock=clock), lambda calls: None, sessions)
        except BaseException:
            for session in sessions:
                session.give_up()
            raise
        return OpenedClient(held, lambda: held.last().close(ACKNOWLEDGE_SECONDS))

    assert settings.database is not None
    return RelayBeside(DatabaseUrl(settings.database), opened)


class ClientBase:
    """An open client, and the calls that return at once. Arguments as for `Client`."""

    def __init__(
        self,
        name: str,
        *,
        proxies: Sequence[str] | None = None,
        proxies_file: Path | str | None = None,
        directory: Path | str | None = None,
        database: str | None = None,
        power_safe: bool | None = None,
        timeout: float | None = None,
        key_file: Path | str | None = None,
        dead_letters: str | None = None,
        settings: ClientSettings | None = None,
        recorder: RecordSink | Path | str | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        boot: str | None = None,
        keys: ClientKeys | None = None,
        relay: bool = False,
    ) -> None:
        refuse_patched("a client")
        check_files()
        check_surroundings(recorder, clock, random, boot)
        valid_wall((clock or SystemClock()).wall())
        made = make_settings(
            settings, proxies, proxies_file, directory, power_safe, timeout, key_file, dead_letters, database
        )
        options: dict[str, Any] = {"context": context, "clock": clock, "random": random, "boot": boot, "keys": keys}
        check_truth("relay", relay)
        if relay and made.database is None:
            raise CallerError("relay=True needs database=: the relay sends the rows of the client's own database")
        opened: list[Session] = []
        self._relay: RelayBeside | None = None
        try:
            self._held = Reopening(partial(Session, name, made, **options, record=recorder), self._opened, opened)
            if relay:
                self._relay = start_relay(made, context, clock)
        except BaseException:
            for session in opened:  # A signal may interrupt even after all is open; no caller holds that session.
                session.give_up()
            raise

    @staticmethod
    def _opened(calls: Calls) -> Any:
        """Build the objects that only this kind of client adds to the calls of a session."""

    @property
    def _calls(self) -> Calls:
        return self._held.current()

    @property
    def _session(self) -> Session:
        return self._held.current().session

    @property
    def _topic_settings(self) -> SettingsCalls:
        from pubsub.client.topic_settings import SettingsCalls  # noqa: PLC0415 - few clients need it.

        session = self._session
        with session.entered():  # A closed client refuses.
            return SettingsCalls(session)

    @property
    def _look_back(self) -> LookBackCalls:
        from pubsub.client.look_back_calls import LookBackCalls  # noqa: PLC0415 - few clients need it.

        return LookBackCalls(self._session)

    @property
    def _topic_objects(self) -> TopicCalls:
        from pubsub.client.topic_objects import TopicCalls  # noqa: PLC0415 - few clients need it.

        session = self._session
        with session.entered():  # A closed client refuses.
            return TopicCalls(session)

    @property
    def name(self) -> str:
        """The client ID."""
        return self._held.calls.session.name

    @property
    def settings(self) -> ClientSettings:
        """The settings in use."""
        return self._held.calls.session.settings

    @property
    def path(self) -> Path:
        """The state file.

        Raises:
            CallerError: the client's state is in a database.
        """
        session = self._held.calls.session
        if session.settings.database is not None:
            raise CallerError(f"client {session.name} has no state file: its state is in {session.store.path}")
        return Path(session.store.path)

    @property
    def expired(self) -> int:
        """Number of messages that were passed over since the start, because their time to live had ended."""
        return self._session.counters["expired"]

    @property
    def record_problem(self) -> str:
        """The reason why the record is incomplete at present; "" if it is complete, or there is no record."""
        recorder = self._held.calls.session.recorder
        return "" if recorder is None else recorder.problem

    @property
    def publisher_id(self) -> str:
        """The source of this client's messages as subscribers see it, `client ID/store ID`."""
        return f"{self._session.name}/{self._session.core.publisher}"

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic; the server may have stored those in doubt already.

        Args:
            topic: the topic; `$calls.NAME` for calls of a service. Waits for the replies of those end by
                `CallDiscarded`.

        Returns:
            The number of messages given up.

        Raises:
            InvalidName: the topic is not allowed.
            StorageError: the disk refused the write.
        """
        return guarded(self._session, self._calls.discard, topic)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open one commit of the client's database around a `with` block: the caller's own rows and any number of puts.

        All of it happens once, or nothing of it if the block raises or the process ends. The commit is fsynced before
        any of its puts is sent. Other threads wait. Inside the block, only `put(…, transaction=…)` and `put_many(…,
        transaction=…)` of this client are allowed. In a block of an `AsyncClient`, await nothing else.

        Returns:
            A context manager that yields the `Transaction`.

        Raises:
            CallerError: the client is closed, or this thread is inside a transaction already.
            StorageError: the commit failed; nothing of it happened.
        """
        return self._calls.puts.transaction()

    def unfinished(self, topic: str) -> int:
        """Count the messages put on a topic without the server's confirmation that they are on its disk."""
        return guarded(self._session, self._calls.puts.unfinished, topic)

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        """Return the state of each subscription.

        Returns:
            A dict for each topic. Its `on` is True if the subscription is wanted, `settled` is True if the service
            confirmed that, and `position` is the place of the last message taken.
        """
        return guarded(self._session, self._calls.subscribing.subscriptions)

    def dead_letters(self, topic: str | None = None, *, bodies: bool = True) -> list[DeadLetter]:
        """Return messages on which a handler failed too often, or that it rejected, and ranges of lost messages.

        Args:
            topic: only those of this topic; None: all.
            bodies: read the bodies. False: each is b"", which takes less memory.
        """
        return guarded(self._session, dead_letters, self._session, topic, bodies=bodies)

    def redrive(
        self,
        letters: str | Sequence[str],
        *,
        topic: str | None = None,
        since: datetime | None = None,
        to: str | None = None,
    ) -> int:
        """Hand dead letters to this client's handler again, with no attempts counted: the next `process` takes them.

        A letter leaves the table in the commit that makes it a waiting message, so it is never in both or in neither.
        Other subscribers of the topic notice nothing.

        Args:
            letters: message IDs (`DeadLetter.first`), or "all". "all" leaves out lost ranges, letters of topics to
                which the client is not subscribed, and those for which there is no room now.
            topic: only those of this topic; None: all.
            since: only those that became dead letters at this time or later; a datetime with a time zone.
            to: put each to this topic instead, with its key and headers, in the commit that takes it out.

        Returns:
            The number of letters redriven.

        Raises:
            CallerError: an argument is not allowed, or there is no such letter; nothing happened.
            NotSubscribed: a named letter is of a topic to which the client is not subscribed; nothing happened.
            TooLarge: there is no room for a further waiting message, or in the outbox.
            StorageError: the disk refused.
        """
        return guarded(self._session, self._calls.redriving.redrive, letters, topic, since, to)

    def purge_dead_letters(self, age: timedelta, *, topic: str | None = None) -> int:
        """Drop the dead letters that are older than `age`. A loss that no call has raised yet stays.

        Args:
            age: time since they became dead letters, at least; `timedelta(0)`: all.
            topic: only those of this topic; None: all.

        Returns:
            The number of letters dropped.

        Raises:
            CallerError: an argument is not allowed.
            StorageError: the disk refused.
        """
        return guarded(self._session, self._calls.redriving.purge, age, topic)

    def calls(self) -> list[CallState]:
        """Return the calls that are kept, oldest first: waiting calls, and calls with a reply."""
        return guarded(self._session, self._calls.calling.calls)

    def forget(self, call: str) -> None:
        """Stop keeping a call: a later reply is dropped, and another call may use the ID.

        Args:
            call: ID of the call.

        Raises:
            NoSuchCall: no call with that ID is kept.
        """
        guarded(self._session, self._calls.calling.forget, call)

    def export(self, directory: Path | str) -> Path:
        """Write the state as files, `client_{id}/{topic}/last_get_id|last_put_counter`.

        The layout is that of Pires et al., section 5.1.

        Args:
            directory: parent of the new directory.

        Returns:
            The new directory.

        Raises:
            CallerError: the new directory exists already, or cannot be written.
            StorageError: the disk is full or fails.
        """
        return guarded(self._session, export_client, self._session, check_path("directory", directory))

    def renew(self, *, keep: bool = True) -> None:
        """Make a copied state directory usable again: as another publisher, with new subscriptions.

        Args:
            keep: keep the unfinished puts, which may be on the server already; False: discard them.

        Raises:
            StorageError: the disk refused the write.
        """
        guarded(self._session, self._calls.renew, keep=keep)

    def _stop_relay(self) -> None:
        if self._relay is not None:
            self._relay.stop()

    def __del__(self) -> None:
        if (relay := getattr(self, "_relay", None)) is not None:
            relay.ask_to_stop()
        held = getattr(self, "_held", None)
        leaving.collected(None if held is None else held.calls)

    def __reduce__(self) -> NoReturn:
        forks.no_pickling(f"client {self.name}")
