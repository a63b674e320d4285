"""Run the receiving calls (docs/explanation/get.md, *Taking a message*).

They wait for messages, commit them as taken, and return them.

The rule is docs/explanation/get.md, G10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Final

from pubsub.client.arguments import check_count
from pubsub.client.core.chunk import Chunk
from pubsub.client.core.message import Batch, RunSlice
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.waits import Waits
from pubsub.client.flows.work import Work
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import Interrupted, PubsubError, Unavailable

RECEIVE_MAX: Final = 10_000
"""Most messages that `get_many` takes if the caller names no number."""

CHUNK_MAX: Final = 1_000
"""Messages that the iterator takes at a time; a process that is killed while it iterates loses at most so many."""

_log: Final = logging.getLogger("pubsub.client")


class Gets(Waits):
    """The receiving calls on one session."""

    def get_many(self, topic: str, most: int, timeout: float | None) -> Flow[Batch]:
        """Take up to `most` messages."""
        check_count("max", most)
        started = self.session.now
        self.session.until(timeout, started)
        while True:
            sub = yield from self.available(topic, timeout, started=started)
            if sub is None:
                return Batch(topic)
            with self.session.entered():
                batch = self._take(sub, most)
            if batch:
                return batch

    def hand_on(
        self, topic: str, most: int, sink: Callable[[Batch, Transaction], object], timeout: float | None, *, fsync: bool
    ) -> Flow[int]:
        """Pass up to `most` messages to `sink` together, and return their number.

        The messages count as taken after `sink` returns, in one commit with the rows that it writes, fsynced if asked.
        If `sink` raises, nothing happened, and the next call gets the same messages.
        """
        started = self.session.now
        self.session.until(timeout, started)
        while True:
            sub = yield from self.available(topic, timeout, started=started)
            if sub is None:
                return 0
            with self.session.entered():
                if taken := self.take_into(sub, most, sink, fsync=fsync):
                    return taken

    def take_into(
        self, sub: Subscription, most: int, sink: Callable[[Batch, Transaction], object], *, fsync: bool
    ) -> int:
        """Take the messages that are here, as `hand_on`, and return their number. The lock is held."""
        session = self.session
        if sub.busy:
            return 0
        self.close_chunk(sub)
        taking = sub.take(most, session.clock.wall())
        if isinstance(taking, Loss):
            self.dead_letter_loss(sub, taking)
        assert isinstance(taking, Taking)
        batch = Batch(sub.topic, taking.pieces)
        with Work(session, partial(taking.change, sub.topic), fsync=fsync) as transaction:
            if batch:
                sink(batch, transaction)
        self.took(sub, taking, fsynced=fsync or session.store.power_safe)
        if session.recorder is not None:
            session.recorder.delivered(sub.topic, taking.pieces, handler=False)
            session.recorder.flush()
        session.follow(only_send=True)
        return len(batch)

    def get_chunk(self, topic: str, timeout: float | None) -> Flow[tuple[Batch, Chunk] | None]:
        """Take messages for an iteration; None if nothing came. `end_chunk` must follow."""
        started = self.session.now
        self.session.until(timeout, started)
        while True:
            sub = yield from self.available(topic, timeout, started=started)
            if sub is None:
                return None
            with self.session.entered():
                batch = self._take(sub, CHUNK_MAX, chunk=True)
                if batch and sub.chunk is not None:
                    return batch, sub.chunk

    def get_on(self, topic: str, timeout: float | None) -> Flow[tuple[Batch, Chunk] | None]:
        """Take messages as `get_chunk`; without a time-out, wait until some come."""
        while True:
            try:
                found = yield from self.get_chunk(topic, timeout)
            except Unavailable:
                if timeout is not None:
                    raise
                continue
            if found is not None or timeout is not None:
                return found

    def _take(self, sub: Subscription, most: int, *, chunk: bool = False) -> Batch:
        """Commit and take messages; the batch is empty if all that were here are duplicates."""
        if sub.busy:
            return Batch(sub.topic)
        self.close_chunk(sub)
        taking = sub.take(most, self.session.clock.wall())
        if isinstance(taking, Loss):
            self.dead_letter_loss(sub, taking)
        assert isinstance(taking, Taking)
        if chunk and taking.pieces:
            sub.begin_chunk(taking)
        try:
            fsynced = self.session.commit(taking.change(sub.topic))
        except PubsubError:
            sub.end_chunk()
            raise
        recorder = self.session.recorder
        if recorder is not None and sub.chunk is not None:
            recorder.handing_out(sub.topic, sub.chunk)
        self.took(sub, taking, fsynced=fsynced)
        if recorder is not None:
            if not chunk:
                recorder.delivered(sub.topic, taking.pieces, handler=False)
            recorder.flush()
        self.session.follow(only_send=True)  # The messages are taken: the caller gets them even if sending fails.
        return Batch(sub.topic, taking.pieces)

    def end_chunk(self, topic: str, chunk: Chunk) -> None:
        """End an iteration; its messages that were not yielded go to the next call."""
        session = self.session
        with session.lock:
            chunk.stop()
            sub = self.core.subscriptions[topic]
            # Inside a transaction of this thread nothing else can be committed: the next call gives back the rest.
            if not session.is_cut_off and sub.chunk is chunk and session.owner != get_ident():
                with suppress(Interrupted), session.entered():
                    self.close_chunk(sub)
                    session.send()
            if session.recorder is not None:
                session.recorder.handed_out(chunk)

    def close_chunks(self) -> None:
        """Close all chunks before the client closes."""
        with self.session.entered():
            for sub in self.core.subscriptions.values():
                self.close_chunk(sub)

    def dead_letter_loss(self, sub: Subscription, loss: Loss) -> None:
        """Continue after a loss, keep it as a dead letter, and raise it. The lock is held.

        Raises:
            DataLoss: always, if the commit succeeds.
        """
        changes, error = sub.dead_letter(loss, self.session.clock.wall())
        self.session.commit(changes)
        if self.session.recorder is not None:
            self.session.recorder.lost(sub.topic, loss)
        sub.dead_lettered(loss, error)
        self.core.moved(sub, self.session.now, fsynced=True)
        self.session.send()
        raise sub.losses.tell()

    def took(self, sub: Subscription, taking: Taking, *, fsynced: bool) -> None:
        """Accept the commit of a taking. The lock is held."""
        sub.took(taking)
        if taking.expired:
            self.expired(sub.topic, taking.expired)
        self.core.moved(sub, self.session.now, fsynced=fsynced)

    def expired(self, topic: str, pieces: Sequence[RunSlice]) -> None:
        """Count records that were passed over, because their time to live has ended."""
        session, count = self.session, sum([piece.stop - piece.start for piece in pieces])
        session.counters["expired"] += count
        _log.debug("client %s: %d messages of %s expired", session.name, count, topic)
        if session.recorder is not None:
            session.recorder.delivered(topic, pieces, handler=False, result="expired")
