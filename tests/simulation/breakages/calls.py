"""Deliberate breakages of the rules of calls; each takes one rule out of the shipped code.

They are tried like the others (`table`), and by `test_calls` each with seeds that show it.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any
from unittest import mock

import pubsub.client.core.calling
import pubsub.client.flows.calling
import pubsub.client.flows.serving
import pubsub.client.flows.work
import pubsub.client.session
import pubsub.client.storage.call_table
import pubsub.server.requests.admission
import pubsub.server.topic.topic
from pubsub.protocol.names import is_reply_topic, reply_topic
from tests.simulation.breakages.room import Room, substitute

CALL = "call: "

breakage = Room(CALL)


@breakage("reply sent before its commit")
def _(stack: contextlib.ExitStack) -> None:
    work = pubsub.client.flows.work.Work
    original = work.__exit__

    def leave(self: Any, kind: Any, error: Any, *trace: Any) -> None:
        session, transaction = self._session, self._transaction
        if error is not None or not any(is_reply_topic(row.topic) for row in transaction.draft.rows):
            original(self, kind, error, *trace)
            return
        session.accept(transaction.draft, fsync=True)
        session.send()
        with mock.patch.object(session, "accept"):
            original(self, kind, error, *trace)

    substitute(stack, work, "__exit__", leave)


@breakage("correlation forgotten on restart")
def _(stack: contextlib.ExitStack) -> None:
    session = pubsub.client.session.Session
    original = session._ask_again

    def forgetting(self: Any) -> None:
        self.store.db.execute("delete from pubsub_calls where outcome = 'waiting'")
        original(self)

    substitute(stack, session, "_ask_again", forgetting)


@breakage("deadline ignored")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.client.core.calling
    original = core.read_request
    service = pubsub.client.flows.serving._Service
    settles = service.settles

    def without(self: Any, attempt: Any) -> bool:
        with mock.patch.object(core, "read_request", lambda found: replace(original(found), deadline=None)):
            return settles(self, attempt)

    substitute(stack, service, "settles", without)


@breakage("reply handed to another caller")
def _(stack: contextlib.ExitStack) -> None:
    """Only for a client that called before and that the worker remembers."""
    service = pubsub.client.flows.serving._Service
    original = service.put_reply
    last: list[str] = []

    def put(self: Any, transaction: Any, request: Any, outcome: str, body: bytes) -> None:
        to = request if not last else replace(request, caller=last[-1])
        last[:] = [request.caller]
        original(self, transaction, to, outcome, body)

    assert reply_topic
    substitute(stack, service, "put_reply", put)


@breakage("call taken though nobody serves")
def _(stack: contextlib.ExitStack) -> None:
    admission = pubsub.server.requests.admission
    substitute(stack, admission, "_workers", lambda topic: iter(["nobody"]))
    put = admission.Admission.put

    def taking(self: Any, *about: Any) -> str:
        rejection = put(self, *about)
        return "" if rejection == "no_worker" else rejection

    substitute(stack, admission.Admission, "put", taking)
    subscription = admission.Admission.subscription
    substitute(
        stack,
        admission.Admission,
        "subscription",
        lambda self, *about, **more: subscription(self, *about, **more).replace("another_client_serves_this", ""),
    )


@breakage("call not durable before it is sent")
def _(stack: contextlib.ExitStack) -> None:
    """The request goes out with its own commit, and the row that would know the call again is never written."""
    table = pubsub.client.storage.call_table.CallTable
    original = table.find

    def find(self: Any, call: str) -> Any:
        found = original(self, call)
        if found is not None and found[0].outcome == "waiting":
            self._database.db.execute("update pubsub_calls set id = id || '.' || n where id = ?", (call,))
            return None
        return found

    calling = pubsub.client.flows.calling.Calling
    known = calling._is_known

    def forgets(self: Any, call: str, topic: str, told_by: bytes) -> bool:
        with mock.patch.object(table, "find", find):
            return known(self, call, topic, told_by)

    substitute(stack, calling, "_is_known", forgets)
