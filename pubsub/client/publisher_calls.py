"""Add to `Client` the calls that publish messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pubsub.client.arguments import Headers, metadata_of
from pubsub.client.client_base import ClientBase
from pubsub.client.core.outbox import counters
from pubsub.client.flows.flow import Flow, Result
from pubsub.client.outgoing.writing import RowTimes, check_alone, put_row, write_rows
from pubsub.client.publisher import Publisher
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.client.ttl import all_with_ttl, with_ttl


class PublisherCalls(ClientBase, ABC):
    """The calls of `Client` that publish."""

    @abstractmethod
    def _run(self, flow: Flow[Result]) -> Result:
        """Run a call's flow on this thread."""

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
            key, headers: delivered as `Message.key` and `Message.headers`. MESSAGE_HEADERS_MAX bounds the headers.
            delay, deliver_at: seconds after the call, or a datetime with a time zone: deliver it then. At most 90 days.
            ttl: seconds from the message's timestamp; clients pass it over afterwards. None: it does not expire.
            timeout: in seconds; None: the client's. transaction: put in its commit, and return at once.
            connection: your own of psycopg 3, or SQLAlchemy's `session.connection().connection`: the message is a row
                of your transaction, and a relay sends it after your commit; see `write_rows`.
            wait: wait until the message is on the server's disk. False: return once it is in the outbox; `flush` waits.

        Returns:
            A ticket with the message's `counter`; its `done` is True once the message is on the server's disk.

        Raises:
            InvalidName, TooLarge, CallerError, StorageError: an argument or the disk refused it; nothing was sent.
            InDoubt: no answer came in time; the message is kept and goes out once, with the next put or `flush`.
            NotAllowed, KeyRefused: a proxy denies the right to put there, or all reject the key. It is kept as well.
            StateCopied: a copy of this state was used elsewhere; see `renew`.
        """
        if connection is not None:
            check_alone(transaction, timeout)
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            return put_row(connection, topic, body, key, headers, times)
        headers = headers if ttl is None else with_ttl(headers, ttl)
        if delay is None and deliver_at is None and transaction is None:
            if wait is True:
                return self._run(self._calls.puts.put(topic, body, key, headers, timeout))
            puts = self._calls.puts
            if wait is False and (now := guarded(self._session, puts.put_now, topic, body, key, headers, timeout)):
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
            times: RowTimes = {"delay": delay, "deliver_at": deliver_at, "ttl": ttl}
            check_alone(transaction, timeout)
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
