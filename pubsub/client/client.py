"""The client that blocks: what most applications call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pubsub.base import forks
from pubsub.client import leaving
from pubsub.client.arguments import (
    check_kind,
    check_path,
    check_proxies,
    check_seconds,
    check_surroundings,
    check_truth,
)
from pubsub.client.core.message import Batch, Message
from pubsub.client.dead_letters import DeadLetter, dead_letters
from pubsub.client.export import export_client
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.processing import PROCESS_MAX, Handler, Processing
from pubsub.client.guards import guards
from pubsub.client.publisher import Publisher
from pubsub.client.session import Session
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.config.loading import load
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError

if TYPE_CHECKING:
    import zmq

    from pubsub.base.clock import Clock
    from pubsub.client.storage.recorder import RecordSink

ACKNOWLEDGE_SECONDS: Final = 0.2
"""How long `close` waits for the last acknowledgements to be answered."""


def make_settings(
    settings: ClientSettings | None,
    proxies: Sequence[str] | None,
    proxies_file: Path | str | None,
    directory: Path | str | None,
    power_safe: bool | None,
    timeout: float | None,
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
    return replace(settings, **{name: getattr(found, name) for name in fields})


def counters(rows: Sequence[Any]) -> Sequence[int]:
    """The counters of the messages in outbox rows, in order."""
    if not rows:
        return range(0)
    if rows[-1].last - rows[0].counter == sum([row.count for row in rows]) - 1:
        return range(rows[0].counter, rows[-1].last + 1)
    return [counter for row in rows for counter in range(row.counter, row.last + 1)]


class Client:
    """A durable client: publisher and subscriber under one name.

    Every call may be made from any thread. Its state is a directory; one process at a time has it open.

    Args:
        name: the client ID, 1-64 of A-Z a-z 0-9 . _ -
        proxies: the proxies' addresses, tried in this order.
        proxies_file: a file that lists them, one a line, as the commands take it.
        directory: where its state lives; None: under the user's data directory, by client ID.
        power_safe: fsync every commit, so that a power cut of this host takes nothing back either.
        timeout: of a call that names none, in seconds.
        settings: everything that can be set; what is named beside it wins. None: what is not named is taken as the
            commands take it, from the environment (`PUBSUB_CLIENT_PROXIES`, `PUBSUB_PROXIES_FILE` …), else from the
            configuration file, else the default.
        recorder: where to write down what it puts, takes and subscribes to, for `pubsub pipeline audit`: a file of JSON
            lines, a directory of Parquet where its name ends in `.parquet`, or a `RecordSink`, which stays open. A
            record that cannot be written keeps no message from going: see `record_problem`.
        context: a ZeroMQ context to share, which `inproc://` addresses need.
        clock: where the time comes from.
        random: where numbers start; None: the operating system's randomness.
        boot: identifies this start of the operating system; None: it is asked.

    Raises:
        CallerError: an argument is of a wrong type.
        InvalidName, ConfigurationError: the name, an address or a setting cannot be.
        StorageError: the directory cannot be used; StoreInUse where another process has it open.
    """

    def __init__(
        self,
        name: str,
        *,
        proxies: Sequence[str] | None = None,
        proxies_file: Path | str | None = None,
        directory: Path | str | None = None,
        power_safe: bool | None = None,
        timeout: float | None = None,
        settings: ClientSettings | None = None,
        recorder: RecordSink | Path | str | None = None,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        boot: str | None = None,
    ) -> None:
        check_surroundings(recorder, clock, random, boot)
        made = make_settings(settings, proxies, proxies_file, directory, power_safe, timeout)
        self._session = Session(name, made, context=context, clock=clock, random=random, boot=boot, record=recorder)
        self._calls = Calls(self._session)
        leaving.opened(self._calls)
        self._processing = Processing(self._session, self._calls.gets)

    @property
    def name(self) -> str:
        """The client ID."""
        return self._session.name

    @property
    def settings(self) -> ClientSettings:
        """What it may do."""
        return self._session.settings

    @property
    def path(self) -> Path:
        """The file of its state."""
        return Path(self._session.store.path)

    @property
    def record_problem(self) -> str:
        """Why the record lacks something at present; "" where it does not, or there is none."""
        recorder = self._session.recorder
        return "" if recorder is None else recorder.problem

    @property
    def publisher_id(self) -> str:
        """Who its messages come from, as subscribers see it: `client ID/store ID`."""
        return f"{self._session.name}/{self._session.core.publisher}"

    def _run(self, flow: Flow[Result]) -> Result:
        session = self._session
        try:
            wait = next(flow)
            while True:
                wait = flow.send(session.wait(wait.done, wait.deadline))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except BaseException:
            flow.close()  # Ctrl-C, or an error in the driving: what the flow holds is given back now, not at some time.
            session.recover()
            raise

    # Puts

    def put(
        self,
        topic: str,
        body: bytes,
        *,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Ticket:
        """Put one message; with it, what is unfinished on its topic goes out first.

        Args:
            topic: 1-80 printable ASCII characters without space, not `*` `>` `#`, nor `_` or `$` in front.
            body: what; it must fit into a batch of BATCH_BYTES_MAX.
            timeout: in seconds; None: the client's.
            transaction: it happens in this transaction's commit, and the call returns at once.
            wait: until the server has it on its disk. False: it is in the outbox and on its way; `flush` waits.

        Returns:
            A ticket: its `counter` is the message's, its `done` says whether the server has it on its disk.

        Raises:
            InvalidName, TooLarge, CallerError: it cannot be put; nothing was written.
            StorageError: the outbox's disk refused; nothing was sent.
            InDoubt: nobody answered in time; the message is kept and goes out once, with the next put or `flush`.
            StateCopied: a copy of this state was used elsewhere; see `renew`.
        """
        (row,) = self._run(self._calls.puts.put_many(topic, (body,), timeout, transaction, wait))
        return Ticket(row)

    def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Put messages in order, in one commit, and in as few batches as they fit into.

        Returns:
            The messages' counters.

        Raises:
            As `put`.
        """
        return counters(self._run(self._calls.puts.put_many(topic, bodies, timeout, transaction, wait)))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> Publisher:
        """Put messages one at a time and send them in batches; a context manager that flushes at its end.

        Args:
            topic: where.
            records: messages in a batch; size: bytes of a batch; linger: seconds until an open batch is sent. None:
                the client's settings.
        """
        return Publisher(self._calls, self._run, topic, records=records, size=size, linger=linger)

    def flush(self, timeout: float | None = None) -> None:
        """Finish every unfinished put.

        Raises:
            InDoubt: not all could be in time; they are kept.
        """
        self._run(self._calls.puts.flush(timeout))

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic; those in doubt may have been taken all the same.

        Returns:
            How many messages those were.
        """
        return guarded(self._session, self._calls.puts.discard, topic)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One commit of the client's database around a `with` block: rows of the caller's own, and any number of puts.

        Either all of it happens, once, or, where the block raises or the process ends, none. It is fsynced before any
        of its puts is sent. Other threads wait; the block must not call this client but for
        `put(…, transaction=…)` and `put_many(…, transaction=…)`.
        """
        return self._calls.puts.transaction()

    def unfinished(self, topic: str) -> int:
        """How many messages on a topic are put and not known to be on the server's disk."""
        return guarded(self._session, self._calls.puts.unfinished, topic)

    # Subscriptions

    def subscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive what is put on a topic from now on.

        Where it is subscribed to already the service is asked: a subscription that it knows keeps its place, and one
        that was ended elsewhere, by an operator or a later opening of this client, is made anew.

        Raises:
            InvalidName: that is not a topic.
            Unavailable: it is not confirmed in time; every call on the topic, and every start, asks again.
            StorageError: the disk refused; nothing was sent.
        """
        self._run(self._calls.subscribing.intend(topic, True, timeout))

    def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive nothing more of a topic, and forget what is waiting.

        Raises:
            NotSubscribed: it never was subscribed to from this state directory; nothing is sent.
            Otherwise as `subscribe`.
        """
        self._run(self._calls.subscribing.intend(topic, False, timeout))

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        """By topic: `on`, whether it is wanted; `settled`, whether the service confirmed that; `position`."""
        return guarded(self._session, self._calls.subscribing.subscriptions)

    def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """The next message; it is marked as taken just before this returns, and never comes again.

        Args:
            topic: one that is subscribed to.
            timeout: in seconds; None: the client's. 0: only what is here already.

        Returns:
            The message; None where nothing came in time.

        Raises:
            NotSubscribed: to this topic.
            Unavailable: nobody answered in time.
            DataLoss: messages are lost; said once, and the next call goes on behind them. A process that ended before
                that call is told again after its start.
            Superseded: this client was opened elsewhere later.
            StateCopied: this state is an older copy of itself; see `renew`.
            StorageError: the disk refused to mark it; it was not taken.
        """
        batch = self._run(self._calls.gets.get_many(topic, 1, timeout))
        return batch[0] if batch else None

    def get_many(self, topic: str, max: int = RECEIVE_MAX, timeout: float | None = None) -> Batch:  # noqa: A002
        """As many of the next messages as are here, up to `max`; waits only for the first. Raises as `get`.

        Returns:
            A sequence of messages that are built as they are looked at; empty where nothing came in time.
        """
        return self._run(self._calls.gets.get_many(topic, max, timeout))

    def messages(self, topic: str, timeout: float | None = None) -> Iterator[Message]:
        """Message after message, until none comes for `timeout` seconds; None: without end.

        They are marked as taken some at a time; those that are not handed out when the iteration ends, or when another
        thread takes of the topic, are for the next call. A process that is killed while it iterates loses at most
        CHUNK_MAX of them, and so does a host that loses power then or within SYNC_SECONDS; `process` loses none.
        Raises as `get`; without a time-out it waits on where nobody answers.
        """
        while True:
            found = self._run(self._calls.gets.get_on(topic, timeout))
            if found is None:
                return
            batch, chunk = found
            try:
                for _, message in zip(chunk.claims(), batch, strict=False):
                    yield message
            finally:
                guarded(self._session, self._calls.gets.end_chunk, topic, chunk)

    def process(
        self,
        topic: str,
        handler: Handler,
        timeout: float | None = None,
        max: int = PROCESS_MAX,  # noqa: A002
    ) -> int:
        """Hand messages to a handler, each once: its effect, its puts and the position commit together or not at all.

        `handler(message, transaction)` gets a message and an open transaction of the client's database. One that
        raises rolls back, and so does the end of the process; the message comes again, and the exception is raised
        from here. The attempt is counted before the handler runs: after `handler_attempts` of them the message moves
        to the dead letters with its error, and it goes on. One that Ctrl-C or `sys.exit` ends does not count.

        Args:
            topic: one that is subscribed to.
            handler: called for one message after another, on this thread. An `async def` function is refused before
                anything is taken; a function that returns an awaitable is rolled back when it does, and no attempt
                counts. `AsyncClient.process` takes both.
            timeout: for the first message, in seconds; None: the client's.
            max: messages to take at most; never more than are here.

        Returns:
            How many were taken, dead letters included; 0 where nothing came in time.

        Raises:
            As `get`, and what the handler raises.
        """
        return self._run(self._processing.process(topic, handler, timeout, max))

    def dead_letters(self, topic: str | None = None) -> list[DeadLetter]:
        """Messages that a handler failed on too often, and ranges that were lost; of one topic or of all."""
        return guarded(self._session, dead_letters, self._session, topic)

    # The client

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

    def close(self) -> None:
        """Fsync, acknowledge, and release everything; what is unfinished is kept. More than once is fine."""
        guarded(self._session, self._calls.close, ACKNOWLEDGE_SECONDS)

    def __del__(self) -> None:
        leaving.collected(getattr(self, "_calls", None))

    def __reduce__(self) -> NoReturn:
        forks.no_pickling(f"client {self.name}")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


guards(Client._run)
