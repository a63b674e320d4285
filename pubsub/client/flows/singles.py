"""Puts of one message: in a group with what others put at the same time, or written at once and not waited for.

docs/architecture.md, *Groups*.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pubsub.client.arguments import Headers, check_body, check_headers, check_key, check_not_of_calls
from pubsub.client.contents import Contents
from pubsub.client.core.chain import DONE, UNFINISHED, Chain
from pubsub.client.core.groups import Share
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.puts import Puts
from pubsub.client.steps import guarded
from pubsub.client.storage.transaction import Ticket
from pubsub.errors import CallerError, Unavailable

_NONE: Final = b""
"""The key of what has none, which most have: there is one empty `bytes`."""


class Singles:
    """The calls that put one message, beside all others that put."""

    def __init__(self, puts: Puts) -> None:
        self.puts, self.session, self.core = puts, puts.session, puts.core

    def put(self, topic: str, body: bytes, key: bytes, headers: Headers | None, timeout: float | None) -> Flow[Ticket]:
        """Put one message together with what others put to the topic at the same time, and wait for it.

        What is not written yet when the call ends by an exception is not put.
        """
        chain = self.puts.known(topic)
        if chain is None or topic[0] == "$":
            self.puts.check_put(topic)
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
        chain = chain or self.puts.chain(topic)
        if self.puts.soon is None and not (chain.is_busy or groups.is_open(topic)) and session.enter_if_free():
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
        elif opens and self.puts.soon is not None:
            self.puts.soon(partial(guarded, session, self.write_group, topic))
        elif opens:
            guarded(session, self.write_group, topic)

    def _is_over(self, chain: Chain, share: Share) -> bool:
        """Whether a caller has nothing to wait for any more."""
        row = share.row
        if row is None:
            return share.error is not None or self.puts.shut()
        return row.state != UNFINISHED or chain.failure is not None or self.puts.shut()

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
            self.puts.check(chain)
            raise Unavailable("put", chain.topic, round(share.until - started, 3), session.silence)
        if share.row.state != DONE:
            yield from self.puts.settle([chain], share.until, share.row, started)
        return Ticket(share.row, share.index)

    def put_now(
        self, topic: str, body: bytes, key: bytes, headers: Headers | None, timeout: float | None
    ) -> Ticket | None:
        """Put one message and wait for nothing: what `put_many` does, without what only it needs.

        Returns:
            Its ticket; None where it takes the long way, with nothing written: to a topic that this client has not put
            to before, or where there is no room.
        """
        chain = self.puts.known(topic)
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
        session.enter()
        try:
            (row,) = session.accumulator.put(chain, (contents,), until)
        except BaseException as error:
            session.leave(error)
            raise
        session.leave()
        self.puts.keep_going(chain, now)
        return Ticket(row)
