"""Calls with a discarded request: waiting for them ends with a clear error, and a later reply is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pubsub.client import Client
from pubsub.client.core.chain import Chain
from pubsub.client.core.outbox import Outbox
from pubsub.client.errors import CallDiscarded
from pubsub.embedded import Embedded
from pubsub.errors import StorageError
from tests.client.opened import create, names, rows
from tests.client.services import effect


@pytest.fixture
def service() -> str:
    return f"service{next(names)}"


@pytest.fixture
def worker(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"worker{next(names)}") as opened:
        create(opened, "done")
        yield opened


def outcomes(client: Client) -> dict[str, tuple[str, bool]]:
    return {call.id: (call.outcome, call.told) for call in client.calls()}


def test_waiting_for_a_discarded_call_ends_in_every_life_of_its_caller(cluster: Embedded, service: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        for call in ("a", "b"):
            client.request(service, call.encode(), id=call)
        client.request("other", b"c", id="c")
        assert client.discard(f"$calls.{service}") == 2
        assert client.discard(f"$calls.{service}") == 0
        assert outcomes(client) == {"a": ("discarded", True), "b": ("discarded", True), "c": ("waiting", False)}
        with pytest.raises(CallDiscarded, match="may have been taken before"):
            client.reply("a", timeout=0.0)
    with cluster.client(name) as client:
        with pytest.raises(CallDiscarded) as caught:
            client.call(service, b"a", id="a", timeout=0.05)
        assert (caught.value.exit_code, caught.value.call, caught.value.service) == (34, "a", service)
        client.forget("a")
        client.request(service, b"a", id="a")
        assert outcomes(client)["a"] == ("waiting", False)


def test_a_request_of_an_earlier_life_is_discarded_with_its_call(cluster: Embedded, service: str) -> None:
    """Its batch is on the disk only."""
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.request(service, b"a", id="a")
    with cluster.client(name) as client:
        assert client.discard(f"$calls.{service}") == 1
        assert outcomes(client) == {"a": ("discarded", True)}


def test_a_discarded_call_that_was_taken_before_still_has_its_reply(
    client: Client, worker: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.serve(service, effect, timeout=0)

    def lost(self: Outbox, chain: Chain, *answer: Any) -> Any:
        return [] if chain.topic == f"$calls.{service}" else answered(self, chain, *answer)

    answered = Outbox.answered
    monkeypatch.setattr(Outbox, "answered", lost)
    client.request(service, b"a", id="a")
    assert worker.serve(service, effect, timeout=20.0, max=1) == 1
    assert client.discard(f"$calls.{service}") == 1
    monkeypatch.undo()
    assert outcomes(client) == {"a": ("discarded", True)}
    assert client.reply("a", timeout=20.0).body == b"re:a"
    assert client.reply("a", timeout=0.0).body == b"re:a"
    assert outcomes(client) == {"a": ("done", True)}
    assert rows(worker, "select id from done") == [("a",)]


def test_renewing_without_the_unfinished_puts_discards_their_calls(client: Client, service: str) -> None:
    client.request(service, b"a", id="a")
    client.renew(keep=False)
    assert outcomes(client) == {"a": ("discarded", True)}


def test_a_discard_that_the_disk_refuses_discards_nothing(
    client: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.request(service, b"a", id="a")

    def refused(*_: Any, **__: Any) -> bool:
        raise StorageError("disk", "full")

    monkeypatch.setattr(client._session.store, "commit", refused)
    with pytest.raises(StorageError):
        client.discard(f"$calls.{service}")
    monkeypatch.undo()
    assert outcomes(client) == {"a": ("waiting", False)}
    assert client.unfinished(f"$calls.{service}") == 1
