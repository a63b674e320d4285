"""Run puts (docs/explanation/put.md, *The chain*; docs/explanation/batches.md, *Open batches*).

They write messages to the outbox, send them, and wait for the server's answers.

The rule is docs/explanation/put.md, P9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
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
from pubsub.client.batch_contents import BatchContents, split
from pubsub.client.core.chain import DISCARDED, DONE, UNFINISHED, Chain, Row
from pubsub.client.core.groups import Share
from pubsub.client.due import due_time
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.work import Block
from pubsub.client.session import Session
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket, Transaction
from pubsub.errors import CallerError, InDoubt, Refused, Unavailable
from pubsub.protocol import check_new_topic, check_topic

_NONE: Final = b""
"""Key of a message without a key. There is one empty `bytes` object, so `is` finds the common case."""

LOOK_SECONDS: Final = 0.0003
"""Poll interval for answers in puts that do not wait."""


def _first_unfinished(awaited: Sequence[tuple[Chain, Row]]) -> Chain | None:
    for chain, row in awaited:
        if row.state == UNFINISHED:
            return chain
    return None


class Puts:
    """The calls that put, on one session.

    Attributes:
        soon: schedules the writing of an open batch after the present turn of the event loop, so that all puts of that
            turn share it. None: the caller that opens a batch writes it at once, and a caller without company puts
            alone.
        look_at: next time at which a put that does not wait polls for answers.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core, self.store = session.core, session.store
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self.look_at = float("-inf")

    def check_put(self, topic: str) -> None:
        """Check that this client may put to a topic: a known topic, or one with an allowed name.

        Raises:
            InvalidName: the name is not allowed.
        """
        if check_topic(topic)[0] == "$":
            check_not_of_calls(topic)
        if self.known(topic) is None:
            check_new_topic(topic)

    def known(self, topic: str) -> Chain | None:
        """Return the chain of a topic to which this client has put before; otherwise None."""
        chain = self.core.outbox.chains.get(topic) if type(topic) is str else None
        return chain if chain is not None and (chain.previous or chain.rows) else None

    def chain(self, topic: str) -> Chain:
        """Return the chain of a topic, and make one if needed.

        The lock is needed because other threads iterate over the chains within a step.
        """
        with self.session.lock:
            return self.core.outbox.chain(topic)

    def keep_going(self, chain: Chain, now: float) -> None:
        """Take the answers that are here, so that waiting rows go out while a caller puts more without waiting.

        This is not done on an event loop, since the Messenger's thread leaves the sockets alone for a while after
        another thread drove them.
        """
        if chain.is_busy and self.soon is None and now >= self.look_at:
            self.look_at = now + LOOK_SECONDS
            self.session.drive_once()

    def put(self, topic: str, body: bytes, key: bytes, headers: Headers | None, timeout: float | None) -> Flow[Ticket]:
        """Put one message together with other puts to the topic at the same time, and wait for it.

        If the call ends by an exception before the message is written, the message is not put.
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
                # No other caller puts to this topic at this moment.
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
                self.write_group(topic)  # The call's time is over, or no proxy can be reached: keep the message.
        except BaseException:
            if share.row is None:
                groups.withdraw(topic, share)
                # This caller may have been the one to write the open batch for others; the driving thread takes over.
                session.wake()
            raise
        return (yield from self._ended(chain, share, started))

    def _join(self, chain: Chain, share: Share, now: float) -> None:
        """Let a record be written with others that wait already, by this caller or by another one."""
        session, topic = self.session, chain.topic
        opens = self.core.groups.join(chain, share, now)
        if opens is None:
            session.wake()  # The thread that drives the sockets writes the open batch in time.
        elif opens and self.soon is not None:
            self.soon(partial(guarded, session, self.write_group, topic))
        elif opens:
            guarded(session, self.write_group, topic)

    def _is_over(self, chain: Chain, share: Share) -> bool:
        """Return True if a caller has nothing more to wait for."""
        row = share.row
        if row is None:
            return share.error is not None or self.refusals()
        return row.state != UNFINISHED or chain.failure is not None or self.refusals()

    def write_group(self, topic: str) -> None:
        """Write and send the open batch of a topic; each caller finds its result in its `Share`."""
        try:
            with self.session.entered():
                self.session.accumulator.close(topic)
        except CallerError:
            pass  # The client was closed, or one of its steps interrupted: each caller finds that out.
        except BaseException:
            # An event loop only logs the exception, so the driving thread must write the open batch.
            self.session.wake()
            raise

    def _ended(self, chain: Chain, share: Share, started: float) -> Flow[Ticket]:
        """Return or raise the result of a put after its wait."""
        session = self.session
        if share.row is None and share.error is None:
            if self.core.groups.withdraw(chain.topic, share):
                session.check_usable()
                session.check_open()
            with session.lock:  # Another thread is writing the record at this moment.
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
        """Put one message without waiting, as `put_many` with less work.

        Returns:
            Its ticket. None, with nothing written, if this client has not put to the topic before or there is no room.
            The caller then uses `put_many`.
        """
        chain = self.known(topic)
        if chain is None or not chain.previous or chain.crowded:
            return None
        if topic[0] == "$":
            check_not_of_calls(topic)
        keys = () if key is _NONE else (check_key(key),)
        blocks = () if headers is None else (check_headers(headers),)
        contents = BatchContents((check_body(body),), keys, blocks)
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
        delay: float | None = None,
        deliver_at: datetime | None = None,
    ) -> Flow[list[Row]]:
        """Put messages in one commit; return their rows, which are done if `wait` is True."""
        contents = check_contents(bodies, keys, headers)
        if delay is not None or deliver_at is not None:
            contents = contents._replace(due=due_time(delay, deliver_at, self.session.clock.wall()))
        return (yield from self.put_contents(topic, contents, timeout, transaction, wait))

    def put_contents(
        self, topic: str, contents: BatchContents, timeout: float | None, transaction: Transaction | None, wait: bool
    ) -> Flow[list[Row]]:
        """Put messages as `put_many`, after their arguments were checked."""
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
                reason = f"{len(chain.rows)} batches before it are unfinished"
                reason += f": {chain.trouble}" if chain.trouble else ""
                raise Unavailable("put", topic, seconds, reason)
        self.check(chain)

    def settle(
        self, chains: Sequence[Chain], until: float, row: Row | None = None, started: float | None = None
    ) -> Flow[None]:
        """Wait until a row, or all present rows of some chains, are finished, in order.

        Args:
            started: time at which the call began, if that was earlier.

        Raises:
            InDoubt: some are not finished in time; they are kept.
            StateCopied, Refused: the service rejected them.
            NotAllowed, KeyRefused: the client lacks the right.
            CallerError: they were discarded meanwhile.
        """
        started = self.session.now if started is None else started
        # Rows put by other threads meanwhile are not awaited here; those threads wait for them.
        lasts = [(chain, tuple(chain.rows)[-1:]) for chain in chains] if row is None else [(chains[0], (row,))]
        awaited = [(chain, last) for chain, rows in lasts for last in rows]

        def done() -> bool:
            for chain, last in awaited:  # A refusal on one topic does not stop the others.
                if last.state == UNFINISHED and chain.failure is None:
                    return self.refusals()
            return True

        in_time = True
        while (chain := _first_unfinished(awaited)) is not None:
            if done() or not in_time:
                self._raise(chain, round(until - started, 3), in_time=in_time)
            else:
                in_time = yield Wait(done, until)
        if row is not None and row.state == DISCARDED:
            raise CallerError(f"the put on {row.topic} was discarded during the call")

    def _raise(self, chain: Chain, seconds: float, *, in_time: bool) -> None:
        """Raise the reason why a chain is not finished, unless another call has asked again and it may finish yet."""
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
                    # A server may have stored a denied put at an earlier try.
                    session.recorder.unfinished(chain, "refused" if isinstance(chain.failure, Refused) else "in_doubt")

    def _broken(self, chain: Chain) -> bool:
        return chain.failure is not None or self.refusals()

    def refusals(self) -> bool:
        """Return True if no put can be finished on any topic."""
        core = self.core
        return core.copied is not None or core.refusing.closed or self.session.over

    def check(self, chain: Chain) -> None:
        """Check that puts on a topic can be finished.

        Raises:
            StateCopied, Refused, NotAllowed, KeyRefused, Interrupted, CallerError: the cause.
        """
        if self.core.copied is not None:
            raise self.core.copied
        if chain.failure is not None:
            raise chain.failure
        self.core.refusing.check()
        self.session.check_usable()
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
        """Count the messages on a topic that are put and not finished."""
        with self.session.entered():
            self.session.accumulator.close(check_topic(topic))
            return sum([row.count for row in self.core.outbox.chain(check_topic(topic)).rows])

    def transaction(self) -> Block:
        return Block(self.session)
