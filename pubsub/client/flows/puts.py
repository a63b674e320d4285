"""Puts: written to the outbox, sent, and waited for (docs/architecture.md, *Put: the chain* and *Groups*)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pubsub.client.arguments import (
    Headers,
    check_body,
    check_contents,
    check_headers,
    check_key,
    check_kind,
    check_not_of_calls,
    check_truth,
)
from pubsub.client.contents import Contents, split
from pubsub.client.core.chain import DISCARDED, DONE, UNFINISHED, Chain, Row
from pubsub.client.core.groups import Share
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.work import Block
from pubsub.client.session import Session
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.errors import CallerError, InDoubt, Refused, Unavailable
from pubsub.protocol import check_new_topic, check_topic

_NONE: Final = b""
"""The key of what has none, which most have: there is one empty `bytes`."""

LOOK_SECONDS: Final = 0.0003
"""Who puts and does not wait looks so often whether answers are here."""


def _first_unfinished(awaited: Sequence[tuple[Chain, Row]]) -> Chain | None:
    for chain, row in awaited:
        if row.state == UNFINISHED:
            return chain
    return None


class Puts:
    """The calls that put, on one session.

    Attributes:
        soon: has a group written when an event loop has turned, so that all who put in that turn are in it. None: by
            whoever opens it, at once; and who finds nobody else puts alone.
        look_at: when who puts and does not wait looks for answers again.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core, self.store = session.core, session.store
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self.look_at = float("-inf")

    def check_put(self, topic: str) -> None:
        """See that this client may put to a topic: one that it has put to before, or that may be made.

        Raises:
            InvalidName: it may not.
        """
        if check_topic(topic)[0] == "$":
            check_not_of_calls(topic)
        if self.known(topic) is None:
            check_new_topic(topic)

    def known(self, topic: str) -> Chain | None:
        """The chain of a topic that this client has put to before; None: it has not, or that is no topic."""
        chain = self.core.outbox.chains.get(topic) if type(topic) is str else None
        return chain if chain is not None and (chain.previous or chain.rows) else None

    def chain(self, topic: str) -> Chain:
        """The chain of a topic, found or made between two steps: within one others look for it, or go through all."""
        with self.session.lock:
            return self.core.outbox.chain(topic)

    def keep_going(self, chain: Chain, now: float) -> None:
        """Who puts and does not wait takes the answers that are here, so that what is held goes out while it puts more.

        Not on an event loop, since the Messenger's thread leaves the sockets alone for a while after somebody drove.
        """
        if chain.is_busy and self.soon is None and now >= self.look_at:
            self.look_at = now + LOOK_SECONDS
            self.session.drive_once()

    def put(self, topic: str, body: bytes, key: bytes, headers: Headers | None, timeout: float | None) -> Flow[Ticket]:
        """Put one message together with what others put to the topic at the same time, and wait for it.

        What is not written yet when the call ends by an exception is not put.
        """
        chain = self.known(topic)
        if chain is None or topic[0] == "$":
            self.check_put(topic)
        session, groups = self.session, self.core.groups
        started = session.now
        until = session.until(timeout, started)
        share = Share(
            check_body(body),
            b"" if key is _NONE else check_key(key),
            b"" if headers is None else check_headers(headers),
            until,
        )
        session.check_free()
        chain = chain or self.chain(topic)
        if self.soon is None and not (chain.is_busy or groups.is_open(topic)) and session.enter_if_free():
            try:
                # Nobody else puts here at this moment.
                (share.row,) = session.accumulator.put(chain, (share.contents,), until)
            except BaseException as error:
                session.leave(error)
                raise
            session.leave()
        try:
            if share.row is None:
                self._join(chain, share, started)
            yield Wait(partial(self._is_over, chain, share), until)
            if share.row is None and share.error is None and not session.over:
                self.write_group(topic)  # Its time is over, or nobody can be reached: it is kept.
        except BaseException:
            if share.row is None:
                groups.withdraw(topic, share)
                session.wake()  # It was to write the group, perhaps, and others are in it: who drives looks after that.
            raise
        return (yield from self._ended(chain, share, started))

    def _join(self, chain: Chain, share: Share, now: float) -> None:
        """Have a record written with those that wait already, by this caller or by another one."""
        session, topic = self.session, chain.topic
        opens = self.core.groups.join(chain, share, now)
        if opens is None:
            session.wake()  # Who drives the sockets is to look after it in time.
        elif opens and self.soon is not None:
            self.soon(partial(guarded, session, self.write_group, topic))
        elif opens:
            guarded(session, self.write_group, topic)

    def _is_over(self, chain: Chain, share: Share) -> bool:
        """Whether a caller has nothing to wait for any more."""
        row = share.row
        if row is None:
            return share.error is not None or self.shut()
        return row.state != UNFINISHED or chain.failure is not None or self.shut()

    def write_group(self, topic: str) -> None:
        """Write what waits on a topic, and send it; the callers are told what came of it."""
        try:
            with self.session.entered():
                self.session.accumulator.close(topic)
        except CallerError:
            pass  # The client was closed, or one of its steps cut off: each caller finds that out.
        except BaseException:
            self.session.wake()  # An event loop only logs it, and nobody else was to write: who drives looks after it.
            raise

    def _ended(self, chain: Chain, share: Share, started: float) -> Flow[Ticket]:
        """What a caller is told whose wait is over."""
        session = self.session
        if share.row is None and share.error is None:
            if self.core.groups.withdraw(chain.topic, share):
                session.check_whole()
                session.check_open()
            with session.lock:  # Somebody has it in hand at this moment.
                pass
        if share.error is not None:
            raise share.error
        if share.row is None:
            self.check(chain)
            raise Unavailable("put", chain.topic, round(share.until - started, 3), session.silence)
        if share.row.state != DONE:
            yield from self.settle([chain], share.until, share.row, started)
        return Ticket(share.row, share.index)

    def put_now(
        self, topic: str, body: bytes, key: bytes, headers: Headers | None, timeout: float | None
    ) -> Ticket | None:
        """Put one message and wait for nothing: what `put_many` does, without what only it needs.

        Returns:
            Its ticket; None where it takes the long way, with nothing written: to a topic that this client has not put
            to before, or where there is no room.
        """
        chain = self.known(topic)
        if chain is None or not chain.previous or chain.crowded:
            return None
        if topic[0] == "$":
            check_not_of_calls(topic)
        keys = () if key is _NONE else (check_key(key),)
        blocks = () if headers is None else (check_headers(headers),)
        contents = Contents((check_body(body),), keys, blocks)
        session = self.session
        now = session.now
        until = session.until(timeout, now)
        with session.entered():
            (row,) = session.accumulator.put(chain, (contents,), until)
        self.keep_going(chain, now)
        return Ticket(row)

    def put_many(
        self,
        topic: str,
        bodies: Sequence[bytes],
        timeout: float | None,
        transaction: Transaction | None,
        wait: bool,
        keys: Sequence[bytes] = (),
        headers: Sequence[Headers | None] = (),
    ) -> Flow[list[Row]]:
        """Put messages in one commit; the rows they are in, done where `wait`."""
        contents = check_contents(bodies, keys, headers)
        return (yield from self.put_contents(topic, contents, timeout, transaction, wait))

    def put_contents(
        self, topic: str, contents: Contents, timeout: float | None, transaction: Transaction | None, wait: bool
    ) -> Flow[list[Row]]:
        """As `put_many`, of what was checked already."""
        self.check_put(topic)
        batches = split(contents)
        check_truth("wait", wait)
        now = self.session.now
        until = self.session.until(timeout, now)
        if transaction is not None:
            check_kind("transaction", transaction, Transaction, "a Transaction")
            if transaction.draft.outbox is not self.core.outbox:
                raise CallerError("the transaction is another client's")
            return transaction.put_batches(topic, batches)
        session = self.session
        if wait:
            session.check_may_wait()
        else:
            yield from self.room(topic, until)
        with session.entered():
            chain = self.core.outbox.chain(topic)
            rows = session.accumulator.put(chain, batches, until) if batches else []
        if wait and rows:
            yield from self.settle([chain], until, rows[-1])
        elif not wait:
            self.keep_going(chain, now)
        return rows

    def room(self, topic: str, until: float) -> Flow[None]:
        """Wait until a put that does not wait may join those in flight on a topic.

        Raises:
            Unavailable: there was no room in time; nothing of this put was written.
        """
        started = self.session.now
        chain = self.core.outbox.chains.get(topic)
        if chain is None or not chain.crowded:
            return
        with self.session.entered():
            self.core.finish(topic, until)
            self.session.turn()
        while not chain.roomy:
            self.check(chain)
            if not (yield Wait(lambda: chain.roomy or self._broken(chain), until)):
                if not chain.crowded:
                    break
                seconds = round(until - started, 3)
                raise Unavailable("put", topic, seconds, f"{len(chain.rows)} batches before it are unfinished")
        self.check(chain)

    def settle(
        self, chains: Sequence[Chain], until: float, row: Row | None = None, started: float | None = None
    ) -> Flow[None]:
        """Wait until a row, or all rows that some chains have now, are finished; they are, in order.

        Args:
            started: when the call began, where that was before.

        Raises:
            InDoubt: they are not in time; they are kept.
            StateCopied, Refused: the service says that they cannot be. NotAllowed, NotLetIn: and that we may not.
            CallerError: they were discarded meanwhile.
        """
        started = self.session.now if started is None else started
        # Rows that other threads put meanwhile are waited for by those threads.
        lasts = [(chain, tuple(chain.rows)[-1:]) for chain in chains] if row is None else [(chains[0], (row,))]
        awaited = [(chain, last) for chain, rows in lasts for last in rows]

        def done() -> bool:
            for chain, last in awaited:  # One topic that is refused keeps the others from nothing.
                if last.state == UNFINISHED and chain.failure is None:
                    return self.shut()
            return True

        in_time = True
        while (chain := _first_unfinished(awaited)) is not None:
            if done() or not in_time:
                self._raise(chain, round(until - started, 3), in_time=in_time)
            else:
                in_time = yield Wait(done, until)
        if row is not None and row.state == DISCARDED:
            raise CallerError(f"the put on {row.topic} was discarded while it was waited for")

    def _raise(self, chain: Chain, seconds: float, *, in_time: bool) -> None:
        """Say why a chain is not finished; nothing where it may be yet, because another call asked again meanwhile."""
        self._record_unfinished(chain)
        self.check(chain)
        if not in_time:
            records = sum([kept.count for kept in tuple(chain.rows)])
            trouble = chain.trouble or self.session.silence
            raise InDoubt(self.session.name, chain.topic, seconds, trouble, records)

    def _record_unfinished(self, chain: Chain) -> None:
        session = self.session
        if session.recorder is not None:
            with session.lock:
                if not session.over:
                    # What is denied may have been taken before.
                    session.recorder.unfinished(chain, "refused" if isinstance(chain.failure, Refused) else "in_doubt")

    def _broken(self, chain: Chain) -> bool:
        return chain.failure is not None or self.shut()

    def shut(self) -> bool:
        """Whether nothing can be finished on any topic."""
        core = self.core
        return core.copied is not None or core.doors.closed or self.session.over

    def check(self, chain: Chain) -> None:
        """See that what is put on a topic can be finished.

        Raises:
            StateCopied, Refused, NotAllowed, NotLetIn, Interrupted, CallerError: why it cannot be.
        """
        if self.core.copied is not None:
            raise self.core.copied
        if chain.failure is not None:
            raise chain.failure
        self.core.doors.check()
        self.session.check_whole()
        if self.session.closed:
            raise CallerError(f"client {self.session.name} was closed during the call; unfinished puts are kept")

    def flush(self, timeout: float | None) -> Flow[None]:
        """Finish every unfinished put, each topic's in order."""
        until = self.session.until(timeout)
        with self.session.entered():
            if self.core.copied is not None:
                raise self.core.copied
            self.session.accumulator.close_all()
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
        until = self.session.until(timeout)
        with self.session.entered():
            if self.core.copied is not None:
                raise self.core.copied
            self.session.accumulator.close(topic)
            chain = self.core.finish(topic, until)
            self.session.turn()
        if chain.rows:
            yield from self.settle([chain], until)

    def unfinished(self, topic: str) -> int:
        """How many messages on a topic are put and not finished."""
        with self.session.entered():
            self.session.accumulator.close(check_topic(topic))
            return sum([row.count for row in self.core.outbox.chain(check_topic(topic)).rows])

    def transaction(self) -> Block:
        """One fsynced commit around the block."""
        return Block(self.session)
