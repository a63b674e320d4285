"""The rights for calling and serving, and the errors without them, at real proxies with keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from keyed import Keyed, keyed, line

from pubsub.client import Client
from pubsub.errors import NotAllowed
from tests.client.services import served

CALLS, WORKS = ("put=$calls.billing", "get=$replies.alice"), ("get=$calls.billing", "put=$replies.*")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Keyed]:
    with keyed(tmp_path) as made:
        yield made


def authorize(cluster: Keyed, alice: tuple[str, ...] = CALLS, bob: tuple[str, ...] = WORKS) -> None:
    cluster.authorize(line("client", "alice", *alice), line("client", "bob", *bob))


@pytest.fixture
def pair(cluster: Keyed) -> Iterator[tuple[Client, Client]]:
    """Yield a caller and a worker with exactly the rights that calls need."""
    authorize(cluster)
    with cluster.client("alice") as alice, cluster.client("bob") as bob:
        yield alice, bob


def shout(request: object, transaction: object) -> bytes:
    return b"done"


def denied(call: object) -> str:
    assert callable(call)
    with pytest.raises(NotAllowed) as caught:
        call()
    assert caught.value.exit_code == 22
    return str(caught.value)


def test_the_documented_rights_are_enough_and_needed(pair: tuple[Client, Client]) -> None:
    alice, bob = pair
    with served(bob, "billing", shout):
        assert alice.call("billing", b"x", timeout=30.0).body == b"done"
    assert "may not put to $calls.stock" in denied(lambda: alice.call("stock", b"x"))
    assert "may not get from $calls.stock" in denied(lambda: bob.serve("stock", shout, timeout=0))
    assert "may not get from $calls.billing" in denied(lambda: alice.serve("billing", shout, timeout=0))


def test_a_call_without_the_right_is_kept_and_done_once_the_right_exists(
    cluster: Keyed, pair: tuple[Client, Client]
) -> None:
    alice, bob = pair
    authorize(cluster, alice=CALLS[1:])
    bob.serve("billing", shout, timeout=0)
    assert "may not put to $calls.billing" in denied(lambda: alice.call("billing", b"x", id="one"))
    authorize(cluster)
    with served(bob, "billing", shout):
        alice.flush(timeout=30.0)
        assert alice.reply("one", timeout=30.0).body == b"done"


def test_a_caller_without_the_right_to_get_replies_cannot_call(cluster: Keyed) -> None:
    authorize(cluster, alice=CALLS[:1])
    with cluster.client("alice") as alice:
        assert "may not get from $replies.alice" in denied(lambda: alice.call("billing", b"x", id="one"))
        assert alice.calls() == []
        assert alice.unfinished("$calls.billing") == 0


def test_a_right_that_is_taken_away_ends_a_call_that_waits(cluster: Keyed, pair: tuple[Client, Client]) -> None:
    alice, bob = pair
    bob.serve("billing", shout, timeout=0)
    alice.request("billing", b"x", id="one")
    authorize(cluster, alice=CALLS[:1])
    assert "may not get from $replies.alice" in denied(lambda: alice.reply("one"))
    authorize(cluster)
    with served(bob, "billing", shout):
        assert alice.reply("one", timeout=30.0).body == b"done"


def test_a_worker_without_the_right_to_reply_keeps_its_replies(cluster: Keyed, pair: tuple[Client, Client]) -> None:
    alice, bob = pair
    authorize(cluster, bob=WORKS[:1])
    bob.serve("billing", shout, timeout=0)
    alice.request("billing", b"x", id="one")
    assert bob.serve("billing", shout, timeout=20.0, max=1) == 1
    assert "may not put to $replies.alice" in denied(lambda: bob.flush(timeout=20.0))
    authorize(cluster)
    bob.flush(timeout=30.0)
    assert alice.reply("one", timeout=30.0).body == b"done"
