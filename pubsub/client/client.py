"""The client that blocks: what most applications call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pubsub.client.arguments import Headers, beside_one
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outbox import counters
from pubsub.client.explaining import explain
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.processing import PROCESS_MAX, Handler, Processing
from pubsub.client.guards import guards, within_call
from pubsub.client.publisher import Publisher
from pubsub.client.service_calls import ServiceCalls
from pubsub.client.shared import ACKNOWLEDGE_SECONDS
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction


class Client(ServiceCalls):
    """A durable client: publisher and subscriber under one name.

    Every call may be made from any thread. Its state is a directory; one process at a time has it open.

    Args:
        name: the client ID, 1-64 of A-Z a-z 0-9 . _ -
        proxies: the proxies' addresses, tried in this order.
        proxies_file: a file that lists them, one a line with their public keys, as the commands take it.
        directory: where its state lives; None: under the user's data directory, by client ID.
        power_safe: fsync every commit, so that a power cut of this host takes nothing back either.
        timeout: of a call that names none, in seconds.
        key_file: holds its secret key; None: `NAME.key` beside its state, where there is one. A client with a key
            speaks only to proxies whose keys it knows, from the proxies file or the settings.
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
        keys: its own and its proxies', in memory, in place of files.

    Raises:
        CallerError: an argument is of a wrong type.
        InvalidName, ConfigurationError: the name, an address or a setting cannot be.
        StorageError: the directory cannot be used; StoreInUse where another process has it open.
    """

    def _run(self, flow: Flow[Result]) -> Result:
        session = self._held.calls.session  # The flow is on it: a call finds its calls first.
        held = session.held_here
        try:
            wait = next(flow)
            while True:
                wait = flow.send(session.wait(wait.done, wait.deadline))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except BaseException as error:
            flow.close()  # Ctrl-C, or an error in the driving: what the flow holds is given back now, not at some time.
            if not (held and within_call()):
                session.recover(handled=True)
                explain(session, error)
            raise

    # Puts

    def put(
        self,
        topic: str,
        body: bytes,
        *,
        key: bytes = b"",
        headers: Headers | None = None,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Ticket:
        """Put one message; with it, what is unfinished on its topic goes out first.

        Args:
            topic: 1-80 printable ASCII characters without space, not `*` `>` `#`, nor `_` or `$` in front.
            body: what; it must fit into a batch of BATCH_BYTES_MAX, with its key and its headers.
            key: goes with it, as `Message.key`; b"": it has none.
            headers: names and a value each, which go with it, as `Message.headers`: at most MESSAGE_HEADERS_MAX of
                1-64 printable ASCII characters without space and `=`, and MESSAGE_HEADERS_BYTES_MAX in all.
            timeout: in seconds; None: the client's.
            transaction: it happens in this transaction's commit, and the call returns at once.
            wait: until the server has it on its disk. False: it is in the outbox and on its way; `flush` waits.

        Returns:
            A ticket: its `counter` is the message's, its `done` says whether the server has it on its disk.

        Raises:
            InvalidName, TooLarge, CallerError: it cannot be put; nothing was written.
            StorageError: the outbox's disk refused; nothing was sent.
            InDoubt: nobody answered in time; the message is kept and goes out once, with the next put or `flush`.
            NotAllowed: a proxy says that this client has no right to put there; the message is kept as with InDoubt,
                and not tried again before. Where proxies differ for a moment, after a change of who may what, a denial
                by one of them ends the call.
            NotLetIn: every proxy refuses this client's key, or has another key than is expected; it says for each what
                to do. The message is kept as with InDoubt. Where one proxy lets it in the others are left out.
            StateCopied: a copy of this state was used elsewhere; see `renew`.
        """
        if wait is True and transaction is None:
            return self._run(self._calls.puts.put(topic, body, key, headers, timeout))
        if wait is False and transaction is None:
            now = guarded(self._session, self._calls.puts.put_now, topic, body, key, headers, timeout)
            if now is not None:
                return now
        beside = beside_one(key, headers)
        (row,) = self._run(self._calls.puts.put_many(topic, (body,), timeout, transaction, wait, *beside))
        return Ticket(row)

    def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[bytes] = (),
        headers: Sequence[Headers | None] = (),
        timeout: float | None = None,
        transaction: Transaction | None = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Put messages in order, in one commit, and in as few batches as they fit into.

        Args:
            topic: where; bodies: what.
            keys, headers: none, or one for each message: see `put`.

        Returns:
            The messages' counters.

        Raises:
            As `put`.
        """
        flow = self._calls.puts.put_many(topic, bodies, timeout, transaction, wait, keys, headers)
        return counters(self._run(flow))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> Publisher:
        """Put messages one at a time and send them in batches; a context manager that flushes at its end.

        Args:
            topic: where.
            records: messages in a batch; size: bytes of a batch; linger: seconds until an open batch is sent. None:
                the client's settings.
        """
        return Publisher(self._held, self._run, topic, records=records, size=size, linger=linger)

    def flush(self, timeout: float | None = None) -> None:
        """Finish every unfinished put.

        Raises:
            InDoubt: not all could be in time; they are kept.
            NotAllowed: some of them are on a topic to which there is no right; the others are finished.
            NotLetIn: as `put`.
        """
        self._run(self._calls.puts.flush(timeout))

    # Subscriptions

    def subscribe(self, topic: str, *, fresh: bool = False, timeout: float | None = None) -> None:
        """Receive what is put on a topic from now on, or go on with what waits for this client ID.

        Where it is subscribed to already the service is asked: a subscription that it knows keeps its place. A
        subscription that the service has under this client ID from another state directory, one that was lost or is
        in use elsewhere, is continued: all that was not acknowledged comes, and what was handed out to that directory
        is marked, `Message.doubtful`. An unsubscribing is final: what is put behind it and before this is not received.

        Args:
            fresh: begin at the end, and drop what waits.
            timeout: seconds; a first subscribe from a directory waits while the topic is split, or a proxy is down or
                has just started, unless `fresh` is set.

        Raises:
            InvalidName: that is not a topic.
            Unavailable: it is not confirmed in time; every call on the topic, and every start, asks again.
            NotAllowed, NotLetIn: as `put`; it stays wanted, and is asked for again as with Unavailable.
            StorageError: the disk refused; nothing was sent.
        """
        self._run(self._calls.subscribing.intend(topic, True, timeout, fresh=fresh))

    def unsubscribe(self, topic: str, *, timeout: float | None = None) -> None:
        """Receive nothing more of a topic, and forget what is waiting.

        Raises:
            NotSubscribed: it never was subscribed to from this state directory; nothing is sent.
            Otherwise as `subscribe`.
        """
        self._run(self._calls.subscribing.intend(topic, False, timeout))

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
            NotAllowed: a proxy says that this client has no right to take there. What is here already is handed out
                first; its place is kept, and the next call asks again.
            NotLetIn: as `put`.
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
            calls = self._calls
            found = self._run(calls.gets.get_on(topic, timeout))
            if found is None:
                return
            batch, chunk = found
            try:
                for _, message in zip(chunk.claims(), batch, strict=False):
                    yield message
            finally:
                guarded(calls.session, calls.gets.end_chunk, topic, chunk)

    def process(
        self,
        topic: str | Sequence[str],
        handler: Handler,
        timeout: float | None = None,
        max: int = PROCESS_MAX,  # noqa: A002
    ) -> int:
        """Hand messages to a handler, each once: its effect, its puts and the position commit together or not at all.

        `handler(message, transaction)` gets a message and a transaction of the client's database, which begins with its
        first use; until then other threads use the client. An exception of the handler rolls back, and so does the end
        of the process; the message comes again, and the exception is raised from here. The attempt is counted before
        the handler runs: after `handler_attempts` of them the message moves to the dead letters with its error, and it
        goes on. One that Ctrl-C or `sys.exit` ends does not count.

        Args:
            topic: one that is subscribed to, or several of them. Several have their turns, some messages each, from one
                call to the next too; so one with a long backlog keeps no other one waiting for it.
            handler: called for one message after another, on this thread. An `async def` function is refused before
                anything is taken; a function that returns an awaitable is rolled back when it does, and no attempt
                counts. `AsyncClient.process` takes both.
            timeout: for the first message, in seconds; None: the client's.
            max: messages to take at most; never more than are here.

        Returns:
            How many were taken, dead letters included; 0 where nothing came in time, or no answer did.

        Raises:
            As `get`, and what the handler raises. But a call that ends without an answer, as on a busy machine, raises
            Unavailable only where an answer said that a topic is not served at present, or where none came for as
            long as the client's time-out, in however many calls.
        """
        return self._run(Processing(self._session, self._calls.gets).process(topic, handler, timeout, max))

    # The client

    def close(self) -> None:
        """Fsync, acknowledge, and release everything; what is unfinished is kept. More than once is fine."""
        calls = self._held.last()
        guarded(calls.session, calls.close, ACKNOWLEDGE_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


guards(Client._run)
