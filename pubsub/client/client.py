"""Offer the blocking client `Client`, the main interface for applications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pubsub.client.arguments import Headers, metadata_of
from pubsub.client.client_base import ACKNOWLEDGE_SECONDS
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.outbox import counters
from pubsub.client.core.waiting import Hold, check_hold
from pubsub.client.explaining import explain
from pubsub.client.flows.batches import BATCH_MAX, BatchProcessing
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.flows.gets import RECEIVE_MAX
from pubsub.client.flows.handlers import Handler, ManyHandler
from pubsub.client.flows.processing import PROCESS_MAX, Processing
from pubsub.client.flows.side_by_side import SideBySide
from pubsub.client.flows.worker_pool import check_concurrency, on_threads
from pubsub.client.group_calls import Claim, GroupCalls
from pubsub.client.guards import guards, within_call
from pubsub.client.outgoing.writing import RowTicket, RowTimes, check_alone, write_rows
from pubsub.client.publisher import Publisher
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.client.subscriber_calls import SubscriberCalls
from pubsub.client.topic_calls import TopicCalls
from pubsub.client.ttl import all_with_ttl, with_ttl


class Client(SubscriberCalls, GroupCalls, TopicCalls):
    """A durable client: publisher and subscriber under one name.

    Any thread may make any call. One process at a time may open the state, in a directory or a PostgreSQL database.

    Args:
        name: client ID, 1-64 of the characters A-Z a-z 0-9 . _ -
        proxies: addresses of the proxies, tried in this order.
        proxies_file: file with one address a line, each with its public key, as the commands accept it.
        directory: state directory; None: under the user's data directory, by client ID.
        database: URL of your PostgreSQL database, which keeps the state then (docs/how-to/your-own-database.md).
        power_safe: fsync every commit, so that a power cut of this host undoes none of them either.
        timeout: default time-out of a call, in seconds.
        key_file: file with the client's secret key; None: `NAME.key` beside the state, if that file exists. A client
            with a key connects only to proxies with a known key, from the proxies file or the settings.
        dead_letters: "topic": each dead letter is also put to `$dead.NAME`; "table" or None: it is not.
        settings: all settings; the other arguments override them. None: a setting that is not given comes from the
            environment (`PUBSUB_CLIENT_PROXIES`, `PUBSUB_PROXIES_FILE` …), then the configuration file, then its
            default.
        recorder: record of all puts, received messages and subscriptions, for `pubsub pipeline audit`: a JSON lines
            file, a Parquet directory if its name ends in `.parquet`, or a `RecordSink`, which the client does not
            close. A failed record write delays no message: see `record_problem`.
        context: ZeroMQ context to share, which `inproc://` addresses need.
        clock, random: sources of the time and of the first numbers; None: the operating system's.
        boot: ID of the present start of the operating system; None: the system's own.
        keys: the client's and the proxies' keys in memory, in place of files.
        relay: send the rows of `pubsub.outgoing` in the database while this client is open, unless another relay does;
            see `write_rows`. The relay is a client of its own, with its own ID and key.

    Raises:
        CallerError: an argument has a wrong type.
        InvalidName, ConfigurationError: the name, an address or a setting is not allowed.
        StorageError: the directory or the database cannot be used; StoreInUse if another process has it open.
    """

    def _run(self, flow: Flow[Result]) -> Result:
        session = self._held.calls.session  # Every call looks its calls up first, so the flow runs on this session.
        held = session.held_here
        try:
            wait = next(flow)
            while True:
                wait = flow.send(session.wait(wait.done, wait.deadline))
        except StopIteration as stop:
            result: Result = stop.value
            return result
        except BaseException as error:
            flow.close()  # After Ctrl-C or an error of the sockets the flow must release its holdings now.
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
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        connection: Any = None,
        wait: bool = True,
    ) -> Ticket:
        """Publish one message, after the unfinished puts on the same topic.

        Args:
            topic: 1-80 printable ASCII characters without space, not `*` `>` `#`, nor `_` or `$` as the first.
            body: content; with key and headers it must fit into a batch of BATCH_BYTES_MAX bytes.
            key: message key, delivered as `Message.key`; b"": none.
            headers: names and values, delivered as `Message.headers`: at most MESSAGE_HEADERS_MAX names of 1-64
                printable ASCII characters without space and `=`, and MESSAGE_HEADERS_BYTES_MAX bytes in all.
            delay, deliver_at: seconds after the call, or a datetime with a time zone: deliver it then. At most 90 days.
            ttl: seconds from the message's timestamp; clients pass it over afterwards. None: it does not expire.
            timeout: in seconds; None: the client's.
            transaction: put in the commit of this transaction; the call then returns at once.
            connection: your own connection of psycopg 3, or SQLAlchemy's `session.connection().connection`: the message
                is a row of your transaction, and the relay of its database sends it after your commit. It has no
                `timeout`, no `transaction` and no number yet; see `write_rows` for the errors.
            wait: wait until the message is on the server's disk. False: return once it is in the outbox; `flush` waits.

        Returns:
            A ticket with the message's `counter`; its `done` is True once the message is on the server's disk.

        Raises:
            InvalidName, TooLarge, CallerError, StorageError: an argument or the disk refused it; nothing was sent.
            InDoubt: no answer came in time; the message is kept and goes out once, with the next put or `flush`.
            NotAllowed: a proxy denies the right to put there. The message is kept as with InDoubt, and not tried again
                before. While proxies still differ after a change of rights, a denial by one of them ends the call.
            KeyRefused: every proxy rejects this client's key, or has an unexpected key itself; the text names the
                remedy for each. The message is kept as with InDoubt. One accepting proxy is enough for the call.
            StateCopied: a copy of this state was used elsewhere; see `renew`.
        """
        if connection is not None:
            check_alone(transaction, timeout)
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            write_rows(connection, topic, (body,), keys=(key,), headers=(headers,), **times)
            return RowTicket()
        headers = headers if ttl is None else with_ttl(headers, ttl)
        at_once = delay is None and deliver_at is None and transaction is None
        if at_once and wait is True:
            return self._run(self._calls.puts.put(topic, body, key, headers, timeout))
        if at_once and wait is False:
            now = guarded(self._session, self._calls.puts.put_now, topic, body, key, headers, timeout)
            if now is not None:
                return now
        more = *metadata_of(key, headers), delay, deliver_at
        return Ticket(self._run(self._calls.puts.put_many(topic, (body,), timeout, transaction, wait, *more))[0])

    def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[bytes] = (),
        headers: Sequence[Headers | None] = (),
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
        transaction: Transaction | None = None,
        connection: Any = None,
        wait: bool = True,
    ) -> Sequence[int]:
        """Publish messages in order, in one commit and in as few batches as possible.

        Args:
            topic: as for `put`.
            bodies: one body for each message.
            keys, headers: empty, or one for each message: see `put`.
            delay, deliver_at, ttl, timeout, transaction, connection, wait: as for `put`; for all of them together.

        Returns:
            The messages' counters; none with `connection`.

        Raises:
            PubsubError: as `put`.
        """
        if connection is not None:
            check_alone(transaction, timeout)
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            write_rows(connection, topic, bodies, keys=keys, headers=headers, **times)
            return ()
        if ttl is not None:
            bodies, headers = all_with_ttl(bodies, headers, ttl)
        flow = self._calls.puts.put_many(topic, bodies, timeout, transaction, wait, keys, headers, delay, deliver_at)
        return counters(self._run(flow))

    def publisher(
        self, topic: str, *, records: int | None = None, size: int | None = None, linger: float | None = None
    ) -> Publisher:
        """Open a publisher, which takes messages one at a time and sends them in batches.

        A publisher is a context manager, and flushes at the end of its `with` block.

        Args:
            topic: topic of all its messages.
            records: most messages in a batch; None: the client's setting.
            size: most bytes of a batch; None: the client's setting.
            linger: seconds until an open batch is sent; None: the client's setting.

        Raises:
            InvalidName, CallerError: an argument is not allowed.
        """
        return Publisher(self._held, self._run, topic, records=records, size=size, linger=linger)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the server has stored every unfinished put on its disk.

        Args:
            timeout: in seconds; None: the client's.

        Raises:
            InDoubt: some puts got no answer in time; they are kept.
            NotAllowed: the right to put is missing for some topics; puts on the others are finished.
            KeyRefused: as `put`.
        """
        self._run(self._calls.puts.flush(timeout))

    # Messages

    def get(self, topic: str, timeout: float | None = None, *, group: str | None = None) -> Message | None:
        """Return the next message, which is marked as taken just before the return and never comes again.

        Args:
            topic: a subscribed topic or pattern; `Message.topic` says which topic it was.
            timeout: in seconds; None: the client's. 0: take only a message that is here already.
            group: take from this consumer group, as one of its members.

        Returns:
            The message, or None if none came in time.

        Raises:
            NotSubscribed: the client is not subscribed to the topic.
            Unavailable: no answer came in time.
            NotAllowed: a proxy denies the right to get there. Messages that are here already are returned first. The
                position is kept, and the next call asks again.
            KeyRefused: as `put`.
            DataLoss: messages are lost. The error is raised once, and the next call continues after them. If the
                process ends before that call, the error is raised again after the start.
            Superseded: this client was opened elsewhere later.
            StateCopied: this state is an older copy of itself; see `renew`.
            StorageError: the disk refused to mark the message; it was not taken.
        """
        batch = self.get_many(topic, 1, timeout, group=group)
        return batch[0] if batch else None

    def get_many(
        self,
        topic: str,
        max: int = RECEIVE_MAX,  # noqa: A002
        timeout: float | None = None,
        *,
        group: str | None = None,
    ) -> Batch:
        """Return the next messages that are here, and wait for the first one only.

        Args:
            topic: a subscribed topic.
            max: most messages to return.
            timeout: in seconds; None: the client's. 0: take only messages that are here already.
            group: as for `get`.

        Returns:
            A sequence that builds each message at its first use; empty if none came in time.

        Raises:
            PubsubError: as `get`.
        """
        if group is not None:
            return self._run(self._calls.group_gets.get_many(topic, group, max, timeout))
        return self._run(self._calls.gets.get_many(topic, max, timeout))

    def messages(self, topic: str, timeout: float | None = None, *, group: str | None = None) -> Iterator[Message]:
        """Yield messages until none comes for `timeout` seconds.

        The client marks messages as taken in chunks. Messages not yielded at the end of the iteration, or when another
        thread takes from the topic, go to the next call. A process that is killed while it iterates loses at most
        CHUNK_MAX messages. A host that loses power then, or within SYNC_SECONDS after, loses at most as many. `process`
        loses none.

        Args:
            topic: a subscribed topic.
            timeout: in seconds; None: iterate without end, also while no answer comes.
            group: as for `get`. Each message is then marked as taken alone.

        Raises:
            PubsubError: as `get`.
        """
        if group is not None:
            yield from self._group_messages(topic, group, timeout)
            return
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
                guarded(calls.session, calls.gets.end_chunk, batch.topic, chunk)

    def process(
        self,
        topic: str | Sequence[str],
        handler: Handler,
        timeout: float | None = None,
        max: int = PROCESS_MAX,  # noqa: A002
        hold: Hold = "all",
        *,
        group: str | None = None,
        claim: Claim = "auto",
        concurrency: int = 1,
    ) -> int:
        """Pass messages to a handler, each once: its effect, its puts and the position commit together or not at all.

        `handler(message, transaction)` gets a message and a transaction of the client's database. The transaction
        begins with its first use; until then other threads use the client. If the handler raises or the process ends,
        the transaction rolls back; this call raises the handler's exception at once. The message comes again after
        `retry_first_seconds`, doubled with each failure up to `retry_longest_seconds`. A call in the time until then
        waits, within its time-out, and takes from its other topics. Each attempt is counted before the handler runs,
        also over restarts (`Message.attempts`), except one ended by Ctrl-C or `sys.exit`. After `handler_attempts`
        failures the message moves to the dead letters. A handler raises `Later(seconds)` to get its message again
        then, and `Reject(reason)` to move it to the dead letters at once; this call raises neither.

        Args:
            topic: one subscribed topic, or several, which take turns of some messages each, also from call to call.
            handler: called for one message at a time, on this thread; no `async def` function.
            timeout, max: as for `get_many`.
            hold: what waits behind a waiting message: "all" of its topic, those with its "key", or "none".
            concurrency: above 1, so many handlers run side by side, on threads of their own, each with its own commit.
                Needs `hold="key"` or `hold="none"`. An exception is raised when all running handlers have ended.
            group: take from this consumer group, which counts attempts and keeps dead letters; `hold` does not matter.
            claim: "before": in a group, each message is claimed before its handler begins, so no other member begins it
                meanwhile. For effects outside the transaction.

        Returns:
            The number of messages taken, dead letters and those put off included; 0 if none came in time.

        Raises:
            PubsubError: as `get`; Unavailable if a topic is not served, or no answer came for the client's time-out.
            Exception: as the handler raised it.
        """
        session, gets = self._session, self._calls.gets
        check_hold(hold)
        check_concurrency(concurrency)
        if group is not None:
            return self._process_group(topic, group, handler, timeout, max, concurrency, claim)
        if concurrency > 1:
            source = SideBySide(session, gets, topic, hold, concurrency)
            return self._run(on_threads(session, source, handler, timeout, max, concurrency))
        return self._run(Processing(session, gets).process(topic, handler, timeout, max, hold))

    def process_many(
        self,
        topic: str | Sequence[str],
        handler: ManyHandler,
        timeout: float | None = None,
        max: int = BATCH_MAX,  # noqa: A002
    ) -> int:
        """Pass messages to a handler, many at once: their effects, its puts and the position are one commit.

        `handler(messages, transaction)` gets the messages that are here, at most `max` and of one topic, in order. If
        it raises, the transaction rolls back, and the same messages come one by one, in a list of one message each. So
        only the message at fault waits and is tried again, as with `process`. The same happens after the process ended
        within the handler. `Later` and `Reject` concern a message that came alone.

        Args:
            topic: as for `process`. A pattern or several topics: each transaction is of one topic.
            handler: called on this thread; no `async def` function.
            timeout: as for `get_many`.
            max: most messages of the call, and so of one transaction.

        Returns:
            The number of messages taken, dead letters and those put off included; 0 if none came in time.

        Raises:
            PubsubError: as `process`.
            Exception: as the handler raised it for a message that came alone.
        """
        processing = BatchProcessing(self._session, self._calls.gets)
        return self._run(processing.process(topic, handler, timeout, max))

    # The client

    def close(self) -> None:
        """Fsync, acknowledge, and release everything; unfinished puts are kept. A second call does nothing.

        Raises:
            StorageError: the last commit failed; everything is released all the same.
        """
        self._stop_relay()
        calls = self._held.last()
        guarded(calls.session, calls.close, ACKNOWLEDGE_SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


guards(Client._run)
