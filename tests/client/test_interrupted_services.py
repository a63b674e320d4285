"""A caller and a worker that signals interrupt anywhere: each call happens once, and has one reply."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from striking import Strike, Striker, places
from test_interrupts import SAMPLE, strike

from pubsub.client import Client, Request, Transaction
from pubsub.client.flows import serving
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import Interrupted
from tests.client.opened import create
from tests.client.services import served

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0.001)


def effect(request: Request, transaction: Transaction) -> bytes:
    transaction.execute("insert into done values (?, ?)", (request.id, request.body))
    return b"%s is row %d" % (request.body, transaction.execute("select count(*) from done").get)


def done(worker: Client) -> Counter[str]:
    with worker.transaction() as transaction:
        return Counter(call for (call,) in transaction.execute("select id from done"))


def test_a_caller_interrupted_anywhere_gets_each_reply_once(cluster: Embedded) -> None:
    worker, caller = cluster.client("struck-w"), cluster.client("struck-c")
    create(worker, "done")
    made: list[str] = []

    def call() -> bytes:
        return caller.call("struck", made[-1].encode(), id=made[-1], timeout=30.0).body

    with served(worker, "struck", effect):
        made.append("first")
        call()
        made.append("counted")
        replies = {}
        for at in places(strike(call, 0).count, SAMPLE, 5):
            made.append(f"call-{at}")
            with suppress(Strike, Interrupted):
                Striker(at).run(call)
            caller.put("other", b"still here", timeout=20.0)
            replies[made[-1]] = call()
        assert all(caller.reply(one, timeout=30.0).body == reply for one, reply in replies.items())
    assert done(worker) == Counter(made)
    caller.close()
    worker.close()


def test_a_worker_interrupted_anywhere_does_each_call_once(cluster: Embedded) -> None:
    settings = ClientSettings(handler_attempts=1)  # So an attempt that counted would be an error reply.
    caller, worker = cluster.client("struck-c2"), cluster.client("struck-w2", settings=settings)
    create(worker, "done")
    worker.serve("struck2", effect, timeout=0)
    made: list[str] = []

    def ask(name: str) -> None:
        made.append(caller.request("struck2", name.encode(), id=name))

    def serve() -> None:
        worker.serve("struck2", effect, timeout=20.0, max=1)

    for name in ("first", "counted"):
        ask(name)
        count = strike(serve, 0).count
    for at in places(count, SAMPLE, 6):
        ask(f"call-{at}")
        with suppress(Strike, Interrupted):
            Striker(at).run(serve)
        worker.put("other", b"still here", timeout=20.0)
    worker.flush(timeout=30.0)
    while worker.serve("struck2", effect, timeout=0.5):
        pass
    worker.flush(timeout=30.0)
    assert done(worker) == Counter(made)
    assert {one: caller.reply(one, timeout=30.0).body.partition(b" is row ")[0] for one in made} == {
        one: one.encode() for one in made
    }
    assert worker.dead_letters() == []
    caller.close()
    worker.close()
