"""Collect messages that are put one at a time, and send them in batches.

A batch closes at its limit of messages or bytes, or when it has been open for the linger time. A message costs one
append and one ticket; all other work is done once a batch. The next batch fills while earlier ones are in flight. At
twice the in-flight window of unfinished batches, `put` waits.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NoReturn

from pubsub.base import forks
from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.base.locks import holds, release_all
from pubsub.client.arguments import (
    Headers,
    check_body,
    check_contents,
    check_count,
    check_headers,
    check_key,
    check_seconds,
)
from pubsub.client.due import STEP, due_time
from pubsub.client.filling import BatchTicket, Filling
from pubsub.client.flows.calls import Calls
from pubsub.client.flows.flow import Flow
from pubsub.client.lingering import Lingering
from pubsub.client.reopening import Reopening
from pubsub.client.steps import guarded
from pubsub.client.ttl import with_ttl
from pubsub.errors import AfterFork, CallerError, Interrupted, PubsubError
from pubsub.protocol import batch_size
from pubsub.protocol.batch import DUE_BYTES, END_BYTES

_NEVER: Final = float("inf")

_NONE: Final = b""
"""Key of a message without a key. There is one empty `bytes` object, so `is` finds the common case."""

_PAUSE_SECONDS: Final = 0.001
"""Least time until the next attempt to send a due batch while another thread is in `put`."""


class Publisher:
    """Send messages of one topic in batches; made by `Client.publisher`.

    Any thread may put. The end of the `with` block flushes the publisher.

    Attributes:
        topic: topic of all its messages.
    """

    def __init__(
        self,
        held: Reopening,
        run: Callable[[Flow[Any]], Any],
        topic: str,
        *,
        records: int | None,
        size: int | None,
        linger: float | None,
    ) -> None:
        self._inherited: AfterFork | None = None
        calls = held.current()
        settings = calls.session.settings
        calls.session.check_open()
        for argument, value in (("records", records), ("size", size)):
            if value is not None:
                check_count(argument, value)
        check_seconds("linger", linger)
        calls.puts.check_put(topic)
        self.topic = topic
        self._held, self._run = held, run
        self._calls, self._session = calls, calls.session
        self._records = min(settings.publisher_records if records is None else records, BATCH_RECORDS_MAX)
        self._size = min(settings.publisher_bytes if size is None else size, BATCH_BYTES_MAX)
        self._linger = settings.linger_seconds if linger is None else linger
        self._full = BATCH_BYTES_MAX - DUE_BYTES - batch_size(self._records, 0)
        self._tables = 2 * END_BYTES * self._records
        self._last = self._records - 1
        """Index of the last message of a batch; 0 if no put may take the short way."""
        self._small = min(self._size, self._full - self._tables)
        self._lock = threading.RLock()
        self._filling = Filling()
        self._deadline = _NEVER
        self._chain = guarded(calls.session, calls.puts.chain, topic)
        self._closed = False
        self._lingering = Lingering(self, calls)
        calls.session.timers.append(self._lingering)

    def put(
        self,
        body: bytes,
        *,
        key: bytes = b"",
        headers: Headers | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
        ttl: float | None = None,
    ) -> BatchTicket:
        """Put one message, and wait only while two windows of batches are unfinished (`ClientSettings.window`).

        Args:
            body, key, headers, deliver_at, ttl: as for `Client.put`.
            delay: as for `Client.put`; rounded up to a tenth of a second, so that messages share batches.

        Returns:
            A light ticket. Its `done` is True once the message is on the server's disk.

        Raises:
            Unavailable: no room in time; this message was not put.
            PubsubError: otherwise as `Client.put`.
        """
        # Inside a transaction this thread holds the session's lock. A thread that closes a batch waits for that lock
        # while it holds ours, so waiting for ours here would be a deadlock.
        if self._session.owner is not None:
            self._session.check_outside()
        headers = headers if ttl is None else with_ttl(headers, ttl)
        if headers is None and key is _NONE and type(body) is bytes and delay is None and deliver_at is None:
            try:
                with self._lock:
                    filling = self._filling
                    bodies = filling.bodies
                    index, size = len(bodies), filling.size + len(body)
                    if 0 < index < self._last and size < self._small:  # Neither the first nor the last of its batch.
                        filling.size = size
                        bodies.append(body)
                        return BatchTicket((filling, index))
            except BaseException:
                self._session.recover()
                raise
        self._held.current()
        if self.crowded:  # Before the message is taken, so that a caller without room may put it once more.
            check_contents([body], [key], [headers])
            self._run(self.room())
        return self.add(body, key, headers, delay, deliver_at)

    def add(
        self,
        body: bytes,
        key: bytes = b"",
        headers: Headers | None = None,
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> BatchTicket:
        """Put one message without waiting; the caller must check `crowded` first. Otherwise as `put`."""
        if type(body) is not bytes or len(body) >= self._size:
            body = check_body(body)
        self._held.current()
        self._session.check_outside()
        self._check_free()
        due = due_time(delay, deliver_at, self._session.clock.wall(), STEP)
        return guarded(self._session, self._add, body, check_key(key), check_headers(headers), due)

    def _add(self, body: bytes, key: bytes, headers: bytes, due: int) -> BatchTicket:
        size = len(body) + len(key) + len(headers)
        with self._lock:
            if self._closed:
                raise self._inherited or CallerError(f"the publisher on {self.topic} is closed")
            filling = self._filling
            if filling.due != due and filling.bodies:
                self._close_batch()
                filling = self._filling
            bodies = filling.bodies
            index = len(bodies)
            filling.size += size
            if index and filling.size > self._full - (
                self._tables if key or headers or filling.keys or filling.headers else 0
            ):
                filling.size -= size
                self._close_batch()
                filling, index = self._filling, 0
                bodies, filling.size = filling.bodies, size
            if not index:
                filling.due = due
                self._open_short_way()
                self._lingering.filling = filling
                self._deadline = self._calls.session.now + self._linger
            bodies.append(body)
            if key:
                filling.keys[index] = key
            if headers:
                filling.headers[index] = headers
            if index + 1 >= self._records or filling.size >= self._size:
                try:
                    self._close_batch()
                except PubsubError:
                    bodies.pop()  # This message is not put; those before it stay in the open batch.
                    filling.keys.pop(index, None)
                    filling.headers.pop(index, None)
                    filling.size -= size
                    raise
            elif not index:
                self._calls.session.wake()
        return BatchTicket((filling, index))

    def _check_free(self) -> None:
        """Reject a put in a signal handler that interrupted this publisher, since its message would miss the batch."""
        if holds(self._lock):
            raise CallerError(f"this thread is already inside another call of the publisher on {self.topic}")

    @property
    def crowded(self) -> bool:
        """True while two windows of batches are unfinished; False once closed, since puts are then rejected at once."""
        return self._chain.crowded and not self._closed

    def room(self) -> Flow[None]:
        """Wait until `crowded` is False; `Unavailable` is raised if that takes longer than the client's time-out."""
        return self._calls.puts.room(self.topic, self._calls.session.until(None))

    def _close_batch(self) -> None:
        """Move the open batch to the outbox and send it. The publisher's lock is held."""
        filling, session = self._filling, self._calls.session
        if not filling.bodies:
            self._deadline = _NEVER
            return
        # An exception of a signal handler may leave the batch both here and in the outbox: no message may join it then.
        self._last = 0
        try:
            with session.entered():
                filling.put(self.topic, session)
                self._begin_batch()
        except PubsubError:
            self._open_short_way()
            raise

    def _begin_batch(self) -> None:
        """Let the next message open a new batch."""
        filling = self._filling
        self._filling, self._deadline = Filling(), _NEVER
        filling.bodies = []
        self._open_short_way()

    def _open_short_way(self) -> None:
        # A message without a due time must not join a delayed batch.
        self._last = 0 if self._closed or self._filling.due else self._records - 1

    def deadline(self) -> float:
        """Return the time to send the open batch, on the monotonic clock."""
        return self._deadline

    def tick(self, now: float) -> None:
        """Send the open batch. The thread that drives the sockets calls this method and must not wait for a put."""
        # This thread may hold the lock itself: a signal handler that interrupted a put may wait and drive the sockets.
        if holds(self._lock) or not self._lock.acquire(blocking=False):
            self._deadline = now + max(self._linger / 4, _PAUSE_SECONDS)
            return
        try:
            self._close_batch()
        except Interrupted:
            self._deadline = _NEVER
        except PubsubError:
            # The batch stays open: the next put or flush raises the same error, or succeeds.
            self._deadline = now + 1.0
        finally:
            self._lock.release()

    def flush(self, timeout: float | None = None) -> None:
        """Send the open batch, and wait until all messages put so far are on the server's disk.

        Args:
            timeout: in seconds; None: the client's.

        Raises:
            PubsubError: as `Client.put`.
        """
        self.close_batch()
        self._run(self._calls.puts.flush_topic(self.topic, timeout))

    def close(self) -> None:
        """Flush, and reject later puts. In the child of a fork it does nothing.

        Raises:
            PubsubError: as `flush`; the publisher is closed all the same.
        """
        if self._inherited is not None:
            return
        self._held.current()
        self._session.check_outside()
        self._check_free()
        try:
            self.flush()
        finally:
            self.leave()

    def close_batch(self) -> None:
        """Send the open batch now, without waiting for the server.

        Raises:
            PubsubError: as `Client.put`, without InDoubt.
        """
        self._held.current()
        self._session.check_outside()
        self._check_free()
        guarded(self._session, self._close_locked)

    def _close_locked(self) -> None:
        with self._lock:
            self._close_batch()

    def return_taken(self) -> None:
        """Release the lock if this thread holds it, after an exception that may come from anywhere."""
        release_all(self._lock)

    def move(self, calls: Calls) -> None:
        """Continue in the client's new session, with the open batch if the store does not have it."""
        with self._lock:
            self._calls, self._session = calls, calls.session
            self._chain = calls.puts.chain(self.topic)
            self._open_short_way()
            if self._filling.moved(self._chain):
                self._begin_batch()
            elif self._filling.bodies:
                self._deadline = calls.session.now + self._linger

    def forked(self, error: AfterFork) -> None:
        """Reject all calls in a child process, and drop the open batch there: it belongs to the parent."""
        self._inherited, self._closed, self._last = error, True, 0
        self._lock, self._filling, self._deadline = threading.RLock(), Filling(), _NEVER

    def __reduce__(self) -> NoReturn:
        forks.no_pickling("a publisher")

    def leave(self) -> None:
        """Close without waiting. The open batch goes out, also a message that another thread puts at this moment."""
        try:
            guarded(self._session, self._leave)
        except Interrupted:
            raise  # The messages held here go to the outbox when the client is closed.
        except PubsubError:
            self._lingering.leave()
            raise
        self._lingering.leave()

    def _leave(self) -> None:
        with self._lock:
            self._closed, self._last = True, 0  # From now on no put takes the short way.
            self._close_batch()

    def finish(self) -> int:
        """Put the contents of the open batch before the client closes; return the number of messages."""
        held = len(self._filling.bodies)
        self.leave()
        return held

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._inherited is not None or sys.is_finalizing():
            return
        session, held = self._calls.session, len(self._filling.bodies)
        if session.closed:
            return
        session.wake()  # The thread that drives the sockets puts the remaining messages.
        which = "the message in its open batch is" if held == 1 else f"the {held:,} messages in its open batch are"
        left = f"; {which} put now" if held else ""
        message = f"a publisher on {self.topic} was not closed: use it in a with block, or call close(){left}"
        warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None or self._inherited is not None:
            self.close()
            return
        # Special case: the block failed. Its puts are sent without waiting, and its own error says more than ours.
        try:
            with suppress(PubsubError):
                self.close_batch()
        finally:
            self.leave()
