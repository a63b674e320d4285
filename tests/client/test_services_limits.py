"""Limits of calls, and the one-line error for each mistake, which loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pubsub.client import Client, Request, Transaction
from pubsub.client.errors import CallFailed, NoSuchCall
from pubsub.client.flows import serving
from pubsub.client.storage import call_table
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, HandlerMisused, InvalidName, StoreFull, TooLarge
from tests.client.opened import create, names, rows
from tests.client.services import effect, served


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0.001)


@pytest.fixture
def service() -> str:
    return f"service{next(names)}"


@pytest.fixture
def worker(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"worker{next(names)}", settings=ClientSettings(handler_attempts=3)) as opened:
        create(opened, "done")
        yield opened


def test_calls_are_kept_up_to_a_limit_and_forgotten_by_their_id(
    client: Client, worker: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_table, "CALLS_MAX", 2)
    client.request(service, b"a", id="a")
    client.request(service, b"b", id="b")
    with pytest.raises(TooLarge, match="CALLS_MAX"):
        client.request(service, b"c", id="c")
    with served(worker, service):
        assert client.reply("a", timeout=20.0).body == b"re:a"
    assert next((call.id, call.told) for call in client.calls()) == ("a", True)
    client.forget("b")
    client.request(service, b"c", id="c")
    with pytest.raises(NoSuchCall) as caught:
        client.reply("b")
    assert caught.value.exit_code == 33
    with pytest.raises(NoSuchCall):
        client.forget("b")


def test_a_call_under_a_name_happens_once_however_many_came_between(
    client: Client, worker: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_table, "CALLS_MAX", 1)
    with served(worker, service):
        assert client.call(service, b"first", id="order-1", timeout=20.0).body == b"re:first"
        assert client.call(service, b"second", id="order-2", timeout=20.0).body == b"re:second"
        assert client.request(service, b"first", id="order-1") == "order-1"
        with pytest.raises(NoSuchCall, match="was handed over long ago") as caught:
            client.call(service, b"first", id="order-1", timeout=20.0)
        assert caught.value.over
        with pytest.raises(CallerError, match="with another request"):
            client.request(service, b"other", id="order-1")
        client.call(service, b"third", timeout=20.0)
    assert rows(worker, "select body from done order by rowid") == [(b"first",), (b"second",), (b"third",)]


def test_another_request_under_an_id_is_refused_and_nothing_is_put(client: Client, service: str) -> None:
    client.request(service, b"a", id="a", headers={"h": b"1"})
    before = client.unfinished(f"$calls.{service}")
    for other in (
        lambda: client.request(service, b"b", id="a", headers={"h": b"1"}),
        lambda: client.request(service, b"a", id="a"),
        lambda: client.request("other", b"a", id="a", headers={"h": b"1"}),
    ):
        with pytest.raises(CallerError, match="with another request"):
            other()
    assert client.request(service, b"a", id="a", headers={"h": b"1"}) == "a"
    assert client.unfinished(f"$calls.{service}") == before


def test_a_request_in_a_transaction_happens_with_the_transaction_or_not_at_all(
    client: Client, worker: Client, service: str
) -> None:
    with pytest.raises(CallerError, match="first call cannot be made in a transaction"), client.transaction() as open_:
        client.request(service, b"x", transaction=open_)
    with served(worker, service):
        assert client.call(service, b"first").body == b"re:first"
        with suppress(ZeroDivisionError), client.transaction() as transaction:
            client.request(service, b"never", id="never", transaction=transaction)
            raise ZeroDivisionError
        with client.transaction() as transaction:
            client.request(service, b"once", id="once", transaction=transaction)
        assert client.reply("once", timeout=20.0).body == b"re:once"
    with pytest.raises(NoSuchCall):
        client.reply("never", timeout=0)
    assert [body for (body,) in rows(worker, "select body from done")] == [b"first", b"once"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.call("a b", b""), "service 'a b' is not allowed"),
        (lambda c: c.call("s", "text"), "body is bytes"),
        (lambda c: c.call("s", b"", key="k"), "key is bytes"),
        (lambda c: c.call("s", b"", headers={"pubsub-call": b"x"}), "the calls' own"),
        (lambda c: c.call("s", b"", headers={f"h{n}": b"" for n in range(15)}), "MESSAGE_HEADERS_MAX"),
        (lambda c: c.call("s", b"", id="a b"), "call ID 'a b' is not allowed"),
        (lambda c: c.call("s", b"", deadline=-1), "deadline is at least 0 s"),
        (lambda c: c.call("s", b"", timeout="1"), "timeout is a number"),
        (lambda c: c.call("s", b"", parts=0), "parts is a whole number"),
        (lambda c: c.reply(5), "call ID 5 is not allowed"),
        (lambda c: c.serve("a b", effect), "service 'a b' is not allowed"),
        (lambda c: c.serve("s", None), "handler is a function"),
        (lambda c: c.serve("s", effect, max=0), "max is at least 1"),
        (lambda c: c.serve("s", effect, part=1), "part is a whole number"),
    ],
)
def test_an_invalid_call_is_one_line_and_changes_nothing(client: Client, call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises((CallerError, InvalidName, TooLarge), match=said) as caught:
        call(client)
    assert "\n" not in str(caught.value)
    assert client.subscriptions() == {}
    assert client.calls() == []


def test_topics_of_calls_are_only_for_calls(client: Client, worker: Client, service: str) -> None:
    with served(worker, service):
        client.call(service, b"a")
    mine, its = f"$replies.{client.name}", f"$calls.{service}"
    for call in (
        lambda: client.get(mine),
        lambda: client.process(mine, lambda message, transaction: None),
        lambda: client.unsubscribe(mine),
        lambda: client.put(its, b"x"),
        lambda: client.publisher(its),
        lambda: client.subscribe(its),
        lambda: worker.get(its),
    ):
        with pytest.raises(CallerError, match="is a topic of calls"):
            call()


def test_an_async_handler_is_refused_before_anything_is_taken(client: Client, worker: Client, service: str) -> None:
    async def handler(request: Request, transaction: Transaction) -> bytes:
        return b""

    with pytest.raises(HandlerMisused, match="async def"):
        worker.serve(service, handler)  # type: ignore[arg-type]
    worker.serve(service, effect, timeout=0)
    call = client.request(service, b"a")
    with pytest.raises(HandlerMisused, match="awaitable"):
        worker.serve(service, lambda *both: handler(*both), timeout=20.0)  # type: ignore[arg-type,return-value]  # noqa: PLW0108
    assert worker.serve(service, effect, timeout=20.0, max=1) == 1
    assert client.reply(call, timeout=20.0).body == b"re:a"


@pytest.mark.parametrize("returned", [None, "text", 5])
def test_a_handler_that_returns_no_bytes_has_failed(
    client: Client, worker: Client, service: str, returned: Any
) -> None:
    returns, said = served(worker, service, lambda request, transaction: returned), "returns the reply as bytes"
    with returns, pytest.raises(CallFailed, match=said):
        client.call(service, b"a", timeout=30.0)


def test_a_reply_that_no_batch_holds_is_an_error_reply(
    client: Client, worker: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = served(worker, service, lambda request, transaction: bytes(17 << 20))
    with large, pytest.raises(CallFailed, match="BATCH_BYTES_MAX"):
        client.call(service, b"a", timeout=60.0)


def test_a_full_outbox_ends_serve_with_one_line_and_the_call_comes_again(
    cluster: Embedded, client: Client, service: str
) -> None:
    settings = ClientSettings(outbox_bytes_max=1 << 20, handler_attempts=1)
    with cluster.client(f"worker{next(names)}", settings=settings) as worker:
        worker.serve(service, lambda request, transaction: b"", timeout=0)
        call = client.request(service, b"a")
        worker._session.core.outbox.bytes_max = 10
        with pytest.raises(StoreFull, match="no room for a reply") as caught:
            worker.serve(service, lambda request, transaction: bytes(100), timeout=20.0)
        assert caught.value.exit_code == 7
        worker._session.core.outbox.bytes_max = 1 << 20
        assert worker.serve(service, lambda request, transaction: b"now", timeout=20.0, max=1) == 1
    assert client.reply(call, timeout=20.0).body == b"now"


def test_a_message_that_is_no_call_goes_to_the_dead_letters_and_serving_continues(
    client: Client, worker: Client, service: str
) -> None:
    worker.serve(service, effect, timeout=0)
    calls = client._calls
    with client._session.entered():  # As a program does that speaks the protocol on its own.
        from pubsub.client.batch_contents import BatchContents

        chain = calls.session.core.outbox.chain(f"$calls.{service}")
        calls.session.accumulator.put(chain, [BatchContents([b"not a call"])], calls.session.until(10.0))
    with served(worker, service):
        assert client.call(service, b"a", timeout=20.0).body == b"re:a"
    (letter,) = worker.dead_letters()
    assert (letter.body, letter.attempts) == (b"not a call", 0)
    assert "not a call" in letter.error


def test_a_forged_reply_to_no_call_is_dropped(client: Client, worker: Client, service: str) -> None:
    with served(worker, service):
        client.call(service, b"a", id="a")
        with worker.transaction() as transaction:
            from pubsub.client.batch_contents import BatchContents
            from pubsub.client.core.calling import DONE, reply_headers
            from pubsub.protocol import encode_headers

            for call in ("a", "none"):
                block = encode_headers(reply_headers(call, DONE))
                transaction.put_batches(f"$replies.{client.name}", [BatchContents([b"forged"], (), [block])])
        worker.flush()
        assert client.call(service, b"b", id="b", timeout=20.0).body == b"re:b"
    assert client.reply("a", timeout=0).body == b"re:a"
    assert [call.id for call in client.calls()] == ["a", "b"]
