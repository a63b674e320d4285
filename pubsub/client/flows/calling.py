"""Make calls: put a request once, and keep its reply under the call's ID (docs/clients.md, *Calls that happen once*).

The request's outbox row and the call's own row are one commit, fsynced before the request is sent. The reply is
received like any message, in one commit with the row that keeps it. So a caller that is killed at any time has either
the call and its reply afterwards, or no call. A call made again under its ID is the same call.

The rules are those of docs/explanation/calls.md, X1 and X3.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pubsub.client.arguments import Headers, check_body, check_headers, check_key, check_kind, check_seconds
from pubsub.client.batch_contents import BatchContents
from pubsub.client.core import calling
from pubsub.client.core.calling import DISCARDED, WAITING, CallState, Reply
from pubsub.client.core.message import Batch
from pubsub.client.core.subscription import Subscription
from pubsub.client.errors import CallDiscarded, CallKept, NoSuchCall
from pubsub.client.flows.flow import Flow
from pubsub.client.flows.gets import Gets
from pubsub.client.flows.subscribing import Subscribing
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.call_table import CallTable
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, DecodeError, NotAllowed, Unavailable
from pubsub.protocol import check_id
from pubsub.protocol.names import reply_topic

REPLIES_MAX: Final = 1_000
"""Most replies stored in one commit."""

_log: Final = logging.getLogger("pubsub.client")


class Calling:
    """The calls of `Client` that call a service, on one session."""

    def __init__(self, session: Session, gets: Gets, subscribing: Subscribing) -> None:
        self.session = session
        self._gets, self._subscribing = gets, subscribing
        self._topic = reply_topic(session.name)
        self._waiting: Counter[str] = Counter()
        self._arrived: set[str] = set()
        """`_waiting` counts the waiting callers of each call; `_arrived` has the calls of these with a stored reply."""

    @property
    def _table(self) -> CallTable:
        return CallTable(self.session.store)

    def call(self, service: str, body: bytes, timeout: float | None, *named: Any) -> Flow[Reply]:
        """Make a call and wait for its reply; arguments as for `request`."""
        until = self.session.until(timeout)
        call = yield from self.request(service, body, timeout, *named)
        return (yield from self.reply(call, max(0.0, until - self.session.now)))

    def request(
        self,
        service: str,
        body: bytes,
        timeout: float | None,
        call: str | None,
        key: bytes,
        headers: Headers | None,
        deadline: float | None,
        parts: int,
        transaction: Transaction | None = None,
    ) -> Flow[str]:
        """Make a call and return its ID; it waits only for the first subscription to replies."""
        calling.check_service(service, 0, parts)
        calling.check_own_headers(headers)
        check_seconds("deadline", deadline)
        body, key, own = check_body(body), check_key(key), dict(headers or {})
        check_headers(own)
        named = call is not None
        call = secrets.token_hex(16) if call is None else check_id("call ID", call)
        topic = calling.topic_of(service, key, parts)
        told_by = calling.fingerprint(topic, body, key, own)
        until = self.session.until(timeout)
        made = self.session.clock.wall()
        due = None if deadline is None else made + deadline
        block = check_headers(calling.request_headers(self.session.name, call, own, due))
        contents = BatchContents([body], [key] if key else (), [block])
        if transaction is not None:
            self._check(transaction)
            if not self._knows(call, topic, told_by):
                add = partial(self._table.add, transaction, call, topic, told_by, made, due, named=named)
                transaction.at_commit(add)
                transaction.put_batches(topic, [contents])
            return call
        while True:
            with self.session.entered():
                if self._is_known(call, topic, told_by):
                    return call
                if self._subscribed():
                    with Work(self.session, lambda: (), fsync=True) as work:
                        self._table.add(work, call, topic, told_by, made, due, named=named)
                        work.put_batches(topic, [contents])
                    self.session.follow()
                    return call
            left = max(0.0, until - self.session.now)
            yield from self._subscribing.begin(self._topic, left)

    def _check(self, transaction: Transaction) -> None:
        check_kind("transaction", transaction, Transaction, "a Transaction")
        if transaction.draft.outbox is not self.session.core.outbox:
            raise CallerError("the transaction is another client's")
        transaction.check_open()
        if not self._subscribed():
            raise CallerError("a client's first call cannot be made in a transaction: it must wait for a subscription")

    def _subscribed(self) -> bool:
        sub = self.session.core.subscriptions.get(self._topic)
        return sub is not None and sub.intent.subscribed and isinstance(sub.failure, NotAllowed | None)

    def _knows(self, call: str, topic: str, told_by: bytes) -> bool:
        """As `_is_known`, in a transaction that may have the session's lock or not."""
        with self.session.lock:
            return self._is_known(call, topic, told_by)

    def _is_known(self, call: str, topic: str, told_by: bytes) -> bool:
        """Return True if this call was made before.

        Raises:
            CallerError: a different call was made under its ID.
        """
        found = self._table.find(call)
        known = found[1:] if found is not None else self._table.find_over(call)
        if known is not None and known != (topic, told_by):
            service = calling.service_of(known[0])
            raise CallerError(f"there is a call {call} already, of {service}, with another request")
        return known is not None

    def reply(self, call: str, timeout: float | None) -> Flow[Reply]:
        """Wait for the reply to a call."""
        check_id("call ID", call)
        started = self.session.now
        until = self.session.until(timeout, started)
        self._waiting[call] += 1
        asked, trouble = False, ""
        try:
            while True:
                with self.session.entered():
                    topic = self._settled(call)
                    if isinstance(topic, Reply):
                        return topic
                    if not asked:  # Once only, so that a denied or refused request is not repeated in a loop.
                        asked = True
                        self._send(topic, until)
                chain = self.session.core.outbox.chain(topic)
                if chain.failure is not None:
                    raise chain.failure
                if trouble or (self.session.now >= until and started < until):
                    raise self._silent(call, topic, until - started, trouble)
                left = max(0.0, until - self.session.now)
                try:
                    sub = yield from self._gets.available(self._topic, left, self._arrival(call, topic))
                except Unavailable as error:
                    trouble = error.reason or "no answer"
                    continue
                if sub is not None:
                    with self.session.entered():
                        self._store(sub)
                elif left == 0.0 and not self._arrival(call, topic)():
                    raise self._silent(call, topic, until - started, "")
        finally:
            self._waiting[call] -= 1
            if not self._waiting[call]:
                del self._waiting[call]
                self._arrived.discard(call)

    def _send(self, topic: str, until: float) -> None:
        """Send a request that is not stored at a server yet. The lock is held."""
        if self.session.core.outbox.chain(topic).rows:
            self.session.core.finish(topic, until)
            self.session.follow()

    def _settled(self, call: str) -> Reply | str:
        """Return the reply if it is here, otherwise the topic of the request."""
        session = self.session
        found = self._table.find(call)
        if found is None:
            raise NoSuchCall(session.name, call, over=self._table.find_over(call) is not None)
        state, topic, _ = found
        if state.outcome in (WAITING, DISCARDED):
            return topic
        if not state.told:
            with Work(session, lambda: (), fsync=False) as work:
                self._table.tell(work, call)
        return state.reply()

    def _arrival(self, call: str, topic: str) -> Callable[[], bool]:
        chain = self.session.core.outbox.chain(topic)
        return lambda: call in self._arrived or chain.failure is not None

    def _silent(self, call: str, topic: str, seconds: float, trouble: str) -> CallKept | CallDiscarded:
        """Build the error for a call without a reply."""
        with self.session.entered():
            found = self._table.find(call)
        if found is not None and found[0].outcome == DISCARDED:
            return CallDiscarded(found[0].service, call)
        chain = self.session.core.outbox.chain(topic)
        why = (chain.trouble if chain.rows else "") or trouble or ("not taken yet" if chain.rows else "")
        return CallKept(self.session.name, calling.service_of(topic), call, seconds, why)

    def _store(self, sub: Subscription) -> None:
        """Take the replies that are here, in one commit with the rows that keep them. The lock is held."""
        if not sub.available or sub.busy:
            return
        arrived: list[str] = []

        def sink(replies: Batch, transaction: Transaction) -> None:
            now = self.session.clock.wall()
            for message in replies:
                try:
                    call, outcome = calling.read_reply(message)
                except DecodeError as error:
                    _log.warning("%s of %s is dropped: %s", message.id, message.topic, error)
                    continue
                if self._table.answer(transaction, call, outcome, message.body, now):
                    arrived.append(call)
                else:
                    _log.warning("a reply to call %s is dropped: no call with that ID waits for one", call)

        self._gets.take_into(sub, REPLIES_MAX, sink, fsync=False)
        self._arrived.update(call for call in arrived if call in self._waiting)
        self.session.tell_waiting()

    def calls(self) -> list[CallState]:
        """Return every kept call, oldest first."""
        with self.session.entered():
            return self._table.all()

    def forget(self, call: str) -> None:
        """Stop keeping a call: a later reply is dropped, and another call may use the ID."""
        check_id("call ID", call)
        with self.session.entered():
            with Work(self.session, lambda: (), fsync=True) as work:
                found = self._table.forget(work, call)
            if not found:
                raise NoSuchCall(self.session.name, call)
            if call in self._waiting:  # Wake its waiting callers, which then raise NoSuchCall.
                self._arrived.add(call)
        self.session.tell_waiting()
