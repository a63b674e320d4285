"""What an application can ask of a client, each call written once as a flow (see `waiting`).

What is durable when (docs/architecture.md, *Put: the chain* and *Subscribe and get*):

    put                 its outbox row is committed before it is sent; fsynced too where the client is power_safe
    transaction         one commit with the caller's rows, fsynced before any of its puts is sent
    process             effect, puts and position in one commit; where it puts, fsynced before those are sent
    get, get_many       the position is committed before they return
    hand_on             what the caller does with messages comes first, then the position is committed
    subscribe, …        the intent is fsynced before the first transmission, the answer before the call returns
    acknowledgements    cover only positions that an fsync has covered, at most SYNC_SECONDS after they were taken
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Final

from pubsub.client.arguments import check_bodies, check_count, check_kind, check_seconds, check_truth
from pubsub.client.changes import Renewed
from pubsub.client.chunk import Chunk
from pubsub.client.message import Batch
from pubsub.client.outbox import DISCARDED, UNFINISHED, Chain, Row
from pubsub.client.session import Session
from pubsub.client.steps import Block, Work
from pubsub.client.subscription import Loss, Subscription, Taking
from pubsub.client.transaction import Transaction
from pubsub.client.waiting import Flow, Wait
from pubsub.errors import (
    CallerError,
    InDoubt,
    Interrupted,
    NotSubscribed,
    PubsubError,
    StateCopied,
    Superseded,
    Unavailable,
)
from pubsub.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.protocol import batch_size, check_new_topic, check_topic, format_position

_log: Final = logging.getLogger("pubsub.client")

RECEIVE_MAX: Final = 10_000
"""Messages that `get_many` takes at most where the caller names no number."""

CHUNK_MAX: Final = 1_000
"""Messages that the iterator takes at a time; a process that is killed while it iterates loses so many at most."""


def split(bodies: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Bodies as batches, each within the limits."""
    if len(bodies) <= BATCH_RECORDS_MAX and batch_size(len(bodies), sum(map(len, bodies))) <= BATCH_BYTES_MAX:
        return [bodies] if bodies else []
    out: list[Sequence[bytes]] = []
    start = size = 0
    for index, body in enumerate(bodies):
        size += len(body)
        if index - start == BATCH_RECORDS_MAX or batch_size(index - start + 1, size) > BATCH_BYTES_MAX:
            out.append(bodies[start:index])
            start, size = index, len(body)
    out.append(bodies[start:])
    return out


class Calls:
    """The calls on one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core, self.store = session.core, session.store

    def until(self, timeout: float | None) -> float:
        """The deadline of a call, on the monotonic clock.

        Raises:
            CallerError: the time-out is no number of seconds.
        """
        check_seconds("timeout", timeout)
        return self.session.now + (self.session.settings.timeout_seconds if timeout is None else timeout)

    # Puts

    def check_put(self, topic: str) -> None:
        """See that this client may put to a topic: one that it has put to before, or that may be made.

        Raises:
            InvalidName: it may not.
        """
        chain = self.core.outbox.chains.get(check_topic(topic))
        if chain is None or not (chain.previous or chain.rows):
            check_new_topic(topic)

    def put_many(
        self, topic: str, bodies: Sequence[bytes], timeout: float | None, transaction: Transaction | None, wait: bool
    ) -> Flow[list[Row]]:
        """Put messages in one commit; the rows they are in, done where `wait`."""
        self.check_put(topic)
        batches = split(check_bodies(bodies))
        check_truth("wait", wait)
        until = self.until(timeout)
        if transaction is not None:
            check_kind("transaction", transaction, Transaction, "a Transaction")
            if transaction.draft.outbox is not self.core.outbox:
                raise CallerError("the transaction is another client's")
            return [transaction.put(topic, batch) for batch in batches]
        if not wait:
            yield from self.room(topic, until)
        session = self.session
        with session.entered():
            rows = session.put_rows(topic, batches, until) if batches else []
            chain = self.core.outbox.chain(topic)
        if wait and rows:
            yield from self.settle([chain], until, rows[-1])
        return rows

    def room(self, topic: str, until: float) -> Flow[None]:
        """Wait until a put that does not wait may join those in flight on a topic.

        Raises:
            Unavailable: there was no room in time; nothing of this put was written.
        """
        with self.session.entered():
            chain = self.core.outbox.chain(topic)
            if not chain.crowded:
                return
            self.core.finish(topic, until)
            self.session.turn()
        if not (yield Wait(lambda: chain.roomy or self._broken(chain), until)) and chain.crowded:
            seconds = self.session.settings.timeout_seconds
            raise Unavailable("put", topic, seconds, f"{len(chain.rows)} batches before it are unfinished")
        self._check(chain)

    def settle(self, chains: Sequence[Chain], until: float, row: Row | None = None) -> Flow[None]:
        """Wait until a row, or all rows that some chains have now, are finished; they are, in order.

        Raises:
            InDoubt: they are not in time; they are kept.
            StateCopied, Refused: the service says that they cannot be.
            CallerError: they were discarded meanwhile.
        """
        started = self.session.now
        # What other threads put meanwhile is theirs to wait for.
        lasts = [(chain, tuple(chain.rows)[-1:]) for chain in chains] if row is None else [(chains[0], (row,))]
        awaited = [(chain, last) for chain, rows in lasts for last in rows]

        def done() -> bool:
            return all(last.state != UNFINISHED for _, last in awaited) or any(map(self._broken, chains))

        if not done():
            yield Wait(done, until)
        for chain, last in awaited:
            if last.state == UNFINISHED:
                self._record_unfinished(chain)
                self._check(chain)
                records = sum([kept.count for kept in tuple(chain.rows)])
                trouble = chain.trouble or self.session.silence
                raise InDoubt(self.session.name, chain.topic, round(until - started, 3), trouble, records)
        if row is not None and row.state == DISCARDED:
            raise CallerError(f"the put on {row.topic} was discarded while it was waited for")

    def _record_unfinished(self, chain: Chain) -> None:
        session = self.session
        if session.recorder is not None:
            with session.lock:
                if not session.over:
                    session.recorder.unfinished(chain, "refused" if chain.failure is not None else "in_doubt")

    def _broken(self, chain: Chain) -> bool:
        return self.core.copied is not None or chain.failure is not None or self.session.over

    def _check(self, chain: Chain) -> None:
        if self.core.copied is not None:
            raise self.core.copied
        if chain.failure is not None:
            raise chain.failure
        self.session.check_whole()
        if self.session.closed:
            raise CallerError(f"client {self.session.name} was closed during the call; unfinished puts are kept")

    def flush(self, timeout: float | None) -> Flow[None]:
        """Finish every unfinished put, each topic's in order."""
        until = self.until(timeout)
        with self.session.entered():
            if self.core.copied is not None:
                raise self.core.copied
            chains = [chain for chain in self.core.outbox.chains.values() if chain.rows]
            for chain in chains:
                self.core.finish(chain.topic, until)
            self.session.turn()
        yield from self.settle(chains, until)
        with self.session.entered():
            if self.core.outbox.finished_rows:
                self.session.commit(())

    def flush_topic(self, topic: str, timeout: float | None) -> Flow[None]:
        """Finish every unfinished put on one topic, in order."""
        until = self.until(timeout)
        with self.session.entered():
            if self.core.copied is not None:
                raise self.core.copied
            chain = self.core.finish(topic, until)
            self.session.turn()
        if chain.rows:
            yield from self.settle([chain], until)

    def discard(self, topic: str) -> int:
        """Give up every unfinished put on a topic, fsynced; how many messages those were."""
        check_topic(topic)
        with self.session.entered():
            changes, rows = self.core.outbox.discard(topic)
            if not rows:
                return 0
            self.store.commit(changes, fsync=True)
            self.core.outbox.removed()
            self.core.outbox.discarded(topic)
            if self.session.recorder is not None:
                self.session.recorder.discarded(rows)
            self.session.follow()
            return sum([row.count for row in rows])

    def transaction(self) -> Block:
        """One fsynced commit around the block."""
        return Block(self.session)

    # Subscriptions

    def intend(self, topic: str, on: bool, timeout: float | None) -> Flow[None]:
        """Subscribe or unsubscribe, and wait until the service has confirmed it."""
        if check_topic(topic) not in self.core.subscriptions and on:
            check_new_topic(topic)
        until = self.until(timeout)
        if not on and topic not in self.core.subscriptions:
            raise NotSubscribed(self.session.name, topic, never=True)
        if on and (yield from self._still_subscribed(topic, until, timeout)):
            return
        yield from self._intend(topic, on, until, timeout)

    def _still_subscribed(self, topic: str, until: float, timeout: float | None) -> Flow[bool]:
        """Ask the service whether it knows a subscription that it has confirmed; False: it is to be made anew."""
        session = self.session
        with session.entered():
            session.check_disk()
            sub = self.core.subscriptions.get(topic)
            if sub is None or not (sub.on and sub.settled) or sub.failure is not None:
                return False
            self.core.check(sub, until)
            session.turn()
        yield Wait(lambda: not sub.unchecked or session.over, until)
        if isinstance(sub.failure, Superseded) or not sub.settled:
            return False
        self._check_intent(sub, True, timeout)
        return True

    def _intend(self, topic: str, on: bool, until: float, timeout: float | None) -> Flow[None]:
        session = self.session
        with session.entered():
            session.check_disk()
            known = topic in self.core.subscriptions
            sub = self.core.subscription(topic)
            if isinstance(sub.failure, StateCopied):
                raise sub.failure
            if not known or sub.on != on or sub.settled:
                try:
                    session.commit([sub.intend(on)])
                except PubsubError:
                    if not known:
                        del self.core.subscriptions[topic]
                    raise
                sub.intended(on)
            sub.failure, sub.insists = None, True
            self.core.settle(sub, until)
            session.turn()
        yield Wait(lambda: sub.settled or sub.failure is not None or sub.on != on or session.over, until)
        sub.insists = False
        self._check_intent(sub, on, timeout)

    def _check_intent(self, sub: Subscription, on: bool, timeout: float | None) -> None:
        if sub.failure is not None:
            raise sub.failure
        self.session.check_whole()
        if sub.on != on:
            raise CallerError(f"{sub.topic}: another thread changed the subscription during the call")
        if not sub.settled or sub.unchecked:
            self.session.check_disk_now()
            seconds = self.session.settings.timeout_seconds if timeout is None else timeout
            raise Unavailable(
                "subscribe" if on else "unsubscribe", sub.topic, seconds, sub.trouble or self.session.silence
            )

    def available(self, topic: str, timeout: float | None) -> Flow[Subscription | None]:
        """Wait until there is something to take on a topic; None where nothing came.

        Raises:
            NotSubscribed, Unavailable, Superseded, StateCopied, DataLoss, StorageError: see `Client.get`.
        """
        session, core = self.session, self.core
        started = session.now
        until = started + (session.settings.timeout_seconds if timeout is None else timeout)
        with session.entered():
            sub = core.subscriptions.get(check_topic(topic))
            if sub is None or not sub.on:
                if sub is None:
                    check_new_topic(topic)  # What cannot be subscribed to is not advised.
                raise NotSubscribed(session.name, topic)
            session.check_disk()
            self.close_chunk(sub)
            if sub.told:
                session.forget_told([sub])
            if sub.available and not sub.busy and not sub.has_news:
                return sub
            core.want(sub, until, started)
            if not sub.settled:  # Also for a call that looks and does not wait: the next one may find it settled.
                core.settle(sub, started + session.settings.timeout_seconds)
            try:
                session.turn()
            except BaseException:
                sub.waiting -= 1
                raise
        ready: Subscription = sub

        def done() -> bool:
            ended = ready.failure is not None or ready.has_news or not ready.on
            return (ready.available and not ready.busy) or ended

        try:
            while True:
                if not (done() or session.over):
                    yield Wait(lambda: done() or session.over, until)
                found = self._found(ready, started, until)
                # Special case: another call took what this one was woken for. It waits on.
                if found is not None or session.now >= until:
                    if found is None and session.recorder is not None:
                        self._record_idle(ready)
                    return found
        finally:
            with session.lock:
                sub.waiting -= 1

    def _record_idle(self, sub: Subscription) -> None:
        session = self.session
        with session.lock:
            if session.recorder is not None and not session.over:
                session.recorder.idle(sub)

    def _found(self, sub: Subscription, started: float, until: float) -> Subscription | None:
        """What a call that waited from `started` to `until` has to say."""
        if sub.has_news:
            self._tell(sub)
        if sub.available and not sub.busy:
            return sub
        if sub.failure is not None:
            raise sub.failure
        self.session.check_whole()
        if self.session.closed:
            raise CallerError(f"client {self.session.name} was closed during the call")
        if not sub.on:
            raise NotSubscribed(self.session.name, sub.topic)
        if sub.busy:
            return None
        if self.session.now >= until > started and (not sub.settled or sub.unheard_since(started)):
            raise Unavailable("get", sub.topic, round(until - started, 3), sub.trouble or self.session.silence)
        return None

    def _tell(self, sub: Subscription) -> None:
        with self.session.entered():
            if sub.has_news:  # No other thread was told of it meanwhile.
                raise sub.tell()

    # Taking

    def get_many(self, topic: str, most: int, timeout: float | None) -> Flow[Batch]:
        """Take up to `most` messages."""
        check_count("max", most)
        until = self.until(timeout)
        while True:
            sub = yield from self.available(topic, max(0.0, until - self.session.now))
            if sub is None:
                return Batch(topic)
            with self.session.entered():
                batch = self._take(sub, most)
            if batch:
                return batch

    def hand_on(
        self, topic: str, most: int, sink: Callable[[Batch, Transaction], object], timeout: float | None, *, fsync: bool
    ) -> Flow[int]:
        """Hand up to `most` messages to `sink` together; how many they were.

        They are taken when it has returned, in one commit with the rows that it writes, fsynced or not. Where it
        raises, none of it happened, and the same messages are there for the next call.
        """
        until = self.until(timeout)
        while True:
            sub = yield from self.available(topic, max(0.0, until - self.session.now))
            if sub is None:
                return 0
            with self.session.entered():
                if taken := self._hand_on(sub, most, sink, fsync=fsync):
                    return taken

    def _hand_on(
        self, sub: Subscription, most: int, sink: Callable[[Batch, Transaction], object], *, fsync: bool
    ) -> int:
        session = self.session
        if sub.busy:
            return 0
        self.close_chunk(sub)
        taking = sub.take(most)
        if isinstance(taking, Loss):
            self.bury_loss(sub, taking)
        assert isinstance(taking, Taking)
        batch = Batch(sub.topic, taking.pieces)
        with Work(session, partial(taking.change, sub.topic), fsync=fsync) as transaction:
            if batch:
                sink(batch, transaction)
        self.took(sub, taking, fsynced=fsync or session.settings.power_safe)
        if session.recorder is not None:
            session.recorder.delivered(sub.topic, taking.pieces, handler=False)
            session.recorder.flush()
        session.send()
        return len(batch)

    def get_chunk(self, topic: str, timeout: float | None) -> Flow[tuple[Batch, Chunk] | None]:
        """Take messages to hand out one by one; None where nothing came. `end_chunk` must follow."""
        until = self.until(timeout)
        while True:
            sub = yield from self.available(topic, max(0.0, until - self.session.now))
            if sub is None:
                return None
            with self.session.entered():
                batch = self._take(sub, CHUNK_MAX, chunk=True)
                if batch and sub.chunk is not None:
                    return batch, sub.chunk

    def get_on(self, topic: str, timeout: float | None) -> Flow[tuple[Batch, Chunk] | None]:
        """As `get_chunk`; without a time-out it goes on until something comes."""
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
        """Commit and take; empty where all that was there had been taken before."""
        if sub.busy:
            return Batch(sub.topic)
        self.close_chunk(sub)
        taking = sub.take(most)
        if isinstance(taking, Loss):
            self.bury_loss(sub, taking)
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
        self.session.send()
        return Batch(sub.topic, taking.pieces)

    def end_chunk(self, topic: str, chunk: Chunk) -> None:
        """Nothing more of a chunk is handed out: what is left of it is for the next call."""
        session = self.session
        with session.lock:
            chunk.stop()
            sub = self.core.subscriptions[topic]
            # Inside a transaction of this thread nothing else can be committed: the next call gives back what is left.
            if not session.over and sub.chunk is chunk and session.owner != get_ident():
                with suppress(Interrupted), session.entered():
                    self.close_chunk(sub)
                    session.send()
            if session.recorder is not None:
                session.recorder.handed_out(chunk)

    def close_chunk(self, sub: Subscription) -> None:
        """The iteration ended, or another call takes: what was not handed out goes back, whoever calls."""
        chunk = sub.chunk
        if chunk is None:
            return
        chunk.stop()
        if chunk.handed < chunk.total:
            change = sub.give_back(chunk)
            self.session.commit([change])
            sub.given_back(chunk, change)
        else:
            sub.end_chunk()
        if self.session.recorder is not None:
            self.session.recorder.handed_out(chunk)
        self.core.moved(sub, self.session.now, fsynced=False)

    def close_chunks(self) -> None:
        """The client is about to be closed."""
        with self.session.entered():
            for sub in self.core.subscriptions.values():
                self.close_chunk(sub)

    def bury_loss(self, sub: Subscription, loss: Loss) -> None:
        """Go on behind a loss, keep it as a dead letter, and tell it. The lock is held.

        Raises:
            DataLoss: always, where the commit succeeds.
        """
        changes, error = sub.bury(loss, self.session.clock.wall())
        self.session.commit(changes)
        if self.session.recorder is not None:
            self.session.recorder.lost(sub.topic, loss)
        sub.buried(loss, error)
        self.core.moved(sub, self.session.now, fsynced=True)
        self.session.send()
        raise sub.tell()

    def took(self, sub: Subscription, taking: Taking, *, fsynced: bool) -> None:
        """The commit of a taking succeeded. The lock is held."""
        sub.took(taking)
        self.core.moved(sub, self.session.now, fsynced=fsynced)

    def renew(self, *, keep: bool) -> None:
        """Make the state directory another publisher, fsynced; `keep`: with its unfinished puts, else without."""
        check_truth("keep", keep)
        session, core = self.session, self.core
        with session.entered():
            for topic in [] if keep else [t for t, chain in core.outbox.chains.items() if chain.rows]:
                discarding, rows = core.outbox.discard(topic)
                self.store.commit(discarding, fsync=True)
                core.outbox.removed()
                core.outbox.discarded(topic)
                if session.recorder is not None:
                    session.recorder.discarded(rows)
            store = secrets.token_hex(8)
            wanted = [sub for sub in core.subscriptions.values() if sub.on]
            # Finished rows that are still in the store leave it with this commit: the next start would take them for
            # unfinished ones, and send them again under the new name.
            changes = [Renewed(store), *core.outbox.renewal(), *[sub.intend(True) for sub in wanted]]
            session.commit(changes, fsync=True)
            core.renewed(store, wanted)
            if session.recorder is not None:
                session.recorder.renewed()
            session.follow()

    def close(self, seconds: float) -> None:
        """End the session; acknowledgements may take `seconds`."""
        self.close_here()
        if not self.session.released and self.session.inherited is None:
            self.session.close(seconds)

    def close_here(self) -> None:
        """What was taken and not handed out is for the next start, and what publishers hold goes to the outbox."""
        session = self.session
        if session.closed:
            return
        if session.block is None:  # A block that an exception has left, without a word to it, must not keep it open.
            session.check_outside()
        if session.cut_off():
            session.mend()
            self.close_batches()
        else:
            self.close_batches()
            self.close_chunks()

    def close_batches(self) -> None:
        """Publishers that were not closed: their open batches are put, and kept where there is no time to send them."""
        for timer in tuple(self.session.timers):
            try:
                held = timer.finish()
            except PubsubError as error:
                text = "client %s: messages in a publisher on %s that was not closed are lost: %s"
                _log.error(text, self.session.name, timer.topic, error)
                continue
            if held:
                which = "the message" if held == 1 else f"the {held:,} messages"
                text = (
                    "client %s: a publisher on %s was not closed; %s in its open batch went to the outbox just now:"
                    " sent at once, or at this client's next start. Use it in a with block, or call close()"
                )
                _log.warning(text, self.session.name, timer.topic, which)

    # State

    def unfinished(self, topic: str) -> int:
        """How many messages on a topic are put and not finished."""
        with self.session.entered():
            return sum([row.count for row in self.core.outbox.chain(check_topic(topic)).rows])

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        """Every subscription: wanted, settled, position."""
        with self.session.entered():
            return {
                topic: {"on": sub.on, "settled": sub.settled, "position": format_position(sub.position)}
                for topic, sub in self.core.subscriptions.items()
            }
