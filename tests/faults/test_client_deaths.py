"""Clients killed at each commit of theirs: inside `subscribe`, `unsubscribe`, `put` and `process`, and in a handler."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pubsub.errors import InDoubt
from tests.faults.checker import check
from tests.faults.cluster import Cluster
from tests.faults.finish import finish, objections, put_end
from tests.faults.history import Putting, Taking

pytestmark = pytest.mark.faults
KILLED = -signal.SIGKILL


def test_a_subscriber_killed_at_any_commit_gets_everything_once(cluster: Cluster) -> None:
    cluster.run(2, 1)
    points = [
        (change, when, count)
        for change, count in (("Intended", 1), ("Confirmed", 1), ("Tried", 3), ("Taken", 4), ("Taken", 40))
        for when in ("inside", "after")
    ]
    subscribers = [
        cluster.subscriber(f"{change}-{count}-{when}", ["a", "b"], die={"change": change, "when": when, "count": count})
        for change, when, count in points
    ]
    publisher = cluster.publisher("alice", ["a", "b"], pause=0.02)
    for process in subscribers:
        assert process.wait() == KILLED
        process.again(die=None)
    finish(cluster, ["a", "b"], [publisher], subscribers)
    assert objections(cluster, [publisher], subscribers) == []


def test_a_subscriber_killed_inside_unsubscribe_is_unsubscribed_or_is_not_and_both_agree(cluster: Cluster) -> None:
    cluster.run(2, 1)
    # The first intent and its confirmation are to subscribe; the second to leave; the third to come back.
    points = [
        (change, when, count)
        for change in ("Intended", "Confirmed")
        for when in ("inside", "after")
        for count in (2, 3)
    ]
    subscribers = [
        cluster.subscriber(
            f"{change}-{count}-{when}", ["a"], leaves=["a"], die={"change": change, "when": when, "count": count}
        )
        for change, when, count in points
    ]
    publisher = cluster.publisher("alice", ["a"], pause=0.02)
    for process in subscribers:
        assert process.wait() == KILLED
        process.again(die=None)
    for process in subscribers:
        process.wait_line("turned")
    finish(cluster, ["a"], [publisher], subscribers)
    assert objections(cluster, [publisher], subscribers) == []


def test_a_publisher_killed_at_any_commit_has_put_all_recorded_messages(cluster: Cluster) -> None:
    cluster.run(2, 1)
    subscriber = cluster.subscriber("bob", ["a", "b"])
    subscriber.wait_line("subscribed")
    points = [(change, when) for change in ("RowAdded", "RowsRemoved", "ChainMoved") for when in ("inside", "after")]
    publishers = [
        cluster.publisher(f"{change}-{when}", ["a", "b"], pause=0.02, die={"change": change, "when": when, "count": 3})
        for change, when in points
    ]
    for process in publishers:
        assert process.wait() == KILLED
        process.again(die=None)
    for process in publishers:
        process.wait_line("put")
    finish(cluster, ["a", "b"], publishers, [subscriber])
    assert objections(cluster, publishers, [subscriber]) == []


def test_a_message_that_kills_its_handler_goes_to_the_dead_letters_and_blocks_nobody(cluster: Cluster) -> None:
    cluster.run(1, 1)
    attempts, poison = 3, "alice:3:a"
    subscriber = cluster.subscriber("bob", ["a"], attempts=attempts, poison=poison)
    subscriber.wait_line("subscribed")
    putting = Putting(cluster.client("alice"), "alice")
    putting.put_many("a", 5)
    put_end(cluster, ["a"])
    for _ in range(attempts):
        assert subscriber.wait() == KILLED
        subscriber.start()
    subscriber.say("finish")
    assert subscriber.wait() == 0
    bob = cluster.client("bob")
    (letter,) = bob.dead_letters("a")
    assert (letter.body, letter.attempts) == (poison.encode(), attempts)
    assert "ended in the handler" in letter.error
    bob.close()
    (objection,) = check([cluster.state("alice")], [cluster.state("bob")])
    assert objection.text.endswith(f"did not get {poison}")


@pytest.mark.parametrize("later", ["by the next put", "by flush", "by the next start"])
def test_a_put_that_timed_out_is_kept_and_finished_later_once_and_in_order(cluster: Cluster, later: str) -> None:
    cluster.run(1, 1)
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    putting.put("a")
    cluster.servers[0].pause()
    with pytest.raises(InDoubt) as caught:
        putting.put("a", timeout=0.4)
    assert caught.value.unfinished == 1
    with pytest.raises(InDoubt):
        putting.put("a", timeout=0.2)
    cluster.servers[0].resume()
    if later == "by the next start":
        putting.client.close()
        putting = Putting(cluster.client("alice"), "alice")
        putting.client.flush()
    elif later == "by flush":
        putting.flush()
    putting.put("a")
    put_end(cluster, ["a"])
    taking.drain("a")
    assert [body for (body,) in rows(taking)] == [f"alice:{number}:a" for number in (1, 2, 3, 4)]
    close(cluster)
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []


def rows(taking: Taking) -> list[tuple[str]]:
    """What it has taken."""
    with taking.client.transaction() as transaction:
        return list(transaction.execute("select body from history_seen order by id"))


def close(cluster: Cluster) -> None:
    """Have the clients' databases free for the checker."""
    for client in cluster.clients:
        client.close()


def test_the_state_of_a_killed_client_is_free_at_once(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run(1, 1)
    subscriber = cluster.subscriber("bob", ["a"])
    subscriber.wait_line("took")
    subscriber.kill()
    assert cluster.client("bob").subscriptions()["a"]["settled"]
