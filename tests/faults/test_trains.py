"""Trains on real processes: everybody is killed among them, topics move and split, rights and room end in the midst.

What is put one by one without waiting waits at its client while two messages are in flight, and leaves as trains; each
test sees that there were some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pubsub.cli.authorizing import authorize_line
from pubsub.errors import InDoubt, NotAllowed
from pubsub.protocol import Outcome
from pubsub.security.authorized import EVERY_RIGHT, parse_name
from pubsub.security.files import read_key_file
from pubsub.security.pairs import pair_of
from tests.client.opened import nothing
from tests.faults.checker import check
from tests.faults.cluster import Cluster, Process, until
from tests.faults.finish import finish, objections, put_end
from tests.faults.history import Putting, Taking
from tests.faults.hostile import put, train
from tests.faults.members import SERVER, Members
from tests.faults.net import Net

pytestmark = pytest.mark.faults
TOPICS = ["a", "b"]
MIB = 1 << 20


@pytest.fixture
def net(cluster: Cluster) -> Iterator[Net]:
    """Two proxies behind relays; servers and clients are the test's to start."""
    with ExitStack() as stack:
        yield Net(cluster, stack)


def trains(cluster: Cluster, *servers: str, counter: str = "trains") -> int:
    """How many trains servers have counted since they were started."""
    names = servers or [server.name for server in cluster.servers]
    return sum(cluster.report(name)["counters"].get(counter, 0) for name in names)


def among_trains(cluster: Cluster, *servers: str) -> None:
    """Until trains come in that were not there when this was called."""
    before = trains(cluster, *servers)
    until(lambda: trains(cluster, *servers) > before, "trains come in")


def streams(cluster: Cluster, name: str, **options: object) -> Process:
    """Starts a publisher that puts nothing but streams."""
    return cluster.publisher(name, TOPICS, does=["stream"], pause=0.3, **options)


def takers(cluster: Cluster, *names: str, **options: object) -> list[Process]:
    """Starts subscribers, and waits until they are."""
    started = [cluster.subscriber(name, TOPICS, **options) for name in names]
    for process in started:
        process.wait_line("subscribed")
    return started


def judged(cluster: Cluster, putting: Putting, taking: Taking, topic: str) -> None:
    """Everything is put and taken, and the checker has nothing to object."""
    putting.flush()
    put_end(cluster, [topic])
    taking.drain(topic)
    for client in cluster.clients:
        client.close()
    assert check([cluster.state(putting.client.name)], [cluster.state(taking.client.name)]) == []


@pytest.mark.parametrize(
    "keys", [pytest.param(False, marks=pytest.mark.nightly, id="without keys"), pytest.param(True, id="with keys")]
)
def test_killing_any_process_among_trains_loses_doubles_and_misplaces_nothing(tmp_path: Path, keys: bool) -> None:
    with Cluster(tmp_path, keys=keys) as cluster:
        cluster.run()
        subscribers = takers(cluster, "bob", "eve", beside=["process"])
        publishers = [streams(cluster, name, seed=seed) for seed, name in enumerate(("alice", "carl"))]
        for victim in (*cluster.servers, *publishers, *cluster.proxies, subscribers[0], *reversed(publishers)):
            among_trains(cluster)
            victim.kill()
            victim.start()
            if victim in (*cluster.servers, *cluster.proxies):
                victim.ready()
        among_trains(cluster)
        finish(cluster, TOPICS, publishers, subscribers)
        assert objections(cluster, publishers, subscribers) == []


@pytest.mark.parametrize("change", ["RowAdded", "RowsRemoved"])
@pytest.mark.parametrize("when", ["inside", "after"])
def test_a_client_killed_at_a_commit_of_a_stream_has_put_all_recorded_messages(
    cluster: Cluster, change: str, when: str
) -> None:
    cluster.run(1, 1)
    subscribers = takers(cluster, "bob")
    count = 120 if change == "RowAdded" else 1
    publisher = streams(cluster, "alice", die={"change": change, "when": when, "count": count})
    assert publisher.wait() < 0
    publisher.again(die=None)
    among_trains(cluster)
    finish(cluster, TOPICS, [publisher], subscribers)
    assert objections(cluster, [publisher], subscribers) == []


def test_a_primary_killed_during_trains_hands_over_all_answered_rows(tmp_path: Path) -> None:
    with Members(tmp_path, 1, clients=False, plain=False) as members:
        cluster = members.cluster
        subscribers = takers(cluster, "bob")
        publishers = [streams(cluster, "alice")]
        for victim in ("primary", "standby", "primary"):
            among_trains(cluster, SERVER)
            primary = members.primary()
            struck = next(one for one in members.members if (one is primary) == (victim == "primary"))
            struck.kill()
            among_trains(cluster, SERVER)  # Of the other one, which serves meanwhile.
            struck.start()
            until(members.in_sync, "both are in sync again")
        finish(cluster, TOPICS, publishers, subscribers)
        assert objections(cluster, publishers, subscribers) == []


def test_topics_move_during_trains_without_an_effect_on_clients(cluster: Cluster) -> None:
    cluster.run()
    subscribers, publishers = takers(cluster, "bob"), [streams(cluster, name) for name in ("alice", "carl")]
    for topic in TOPICS:
        until(lambda topic=topic: cluster.holders(topic), "it was put to")
    among_trains(cluster)
    for _ in range(3):
        for topic in TOPICS:
            (giver,) = cluster.holders(topic)
            taker = "s1" if giver == "s2" else "s2"
            until(lambda topic=topic, taker=taker: moved(cluster, topic, taker), f"{topic} moves to {taker}")
            until(lambda topic=topic, taker=taker: cluster.holders(topic) == [taker], "the proxy knows that it moved")
            among_trains(cluster)
    finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []


def moved(cluster: Cluster, topic: str, to: str) -> bool:
    """Whether an operator's move comes to its end; on a busy machine a server may not be heard for a moment."""
    words = ["topic", "move", topic, "--to", to, "--wait", "30", "--yes", "--proxy", cluster.addresses[0]]
    return cluster.process("operator", "-m", "pubsub", *words).start().wait() == 0


def test_a_topic_that_was_split_among_trains_is_joined_without_loss_or_repeat(cluster: Cluster, net: Net) -> None:
    net.servers[0].blocked, net.servers[1].blocked = {"s2"}, {"s1"}
    for _ in range(2):
        cluster.server()
    cluster.wait_ready()
    sides = [[net.clients[0].endpoint], [net.clients[1].endpoint]]
    names = "bob", "eve"
    subscribers = [one for n in (0, 1) for one in takers(cluster, names[n], proxies=sides[n], fresh=True)]
    publishers = [streams(cluster, ("alice", "carl")[n], proxies=sides[n]) for n in (0, 1)]
    for number, name in enumerate(("s1", "s2")):
        until(lambda name=name, n=number: cluster.report(name, n)["counters"].get("trains"), "each side has its own")
    net.heal()
    for topic, proxy in ((topic, proxy) for topic in TOPICS for proxy in (0, 1)):
        until(lambda topic=topic, proxy=proxy: cluster.holders(topic, proxy) == ["s1"], "every topic has one holder")
    among_trains(cluster, "s1")
    finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []


# Rights


def allow(cluster: Cluster, topics: Sequence[str]) -> None:
    """From the next look into the file on, clients may put to these topics and to no other."""
    assert cluster.keys is not None
    public = pair_of(read_key_file(cluster.keys.client)).public
    words = [right for right in EVERY_RIGHT if not right.startswith("put=")]
    authorize_line(cluster.keys.authorized, *parse_name("client", "*"), public, [*words, f"put={','.join(topics)}"])


def test_a_stream_that_loses_its_right_is_kept_and_continues_with_the_right(tmp_path: Path) -> None:
    with Cluster(tmp_path, keys=True) as cluster:
        cluster.run(1, 1)
        taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
        taking.intend("a", True)

        def denied() -> bool:
            try:
                putting.stream("a", 100)
                putting.flush()
            except NotAllowed:
                return True
            return False

        assert not denied()
        for _ in range(2):
            allow(cluster, ["other"])
            until(denied, "the right is lost")
            while taking.process("a", 0.3):
                continue
            assert denied()
            kept = putting.client.unfinished("a")
            assert kept >= 100
            assert taking.process("a", 0.3) == 0, "nothing of a train gets through without the right"
            allow(cluster, ["*"])
            until(lambda: not denied(), "the right is there again")
        assert trains(cluster) > 4
        judged(cluster, putting, taking, "a")


# No room


def test_a_disk_that_fills_up_within_a_train_takes_the_rest_when_there_is_space(cluster: Cluster) -> None:
    cluster.run(1, 1, store_bytes_max=4 * MIB, retention_hold_seconds=1.0, skew_seconds=0.1)
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice", padding=4000)
    taking.intend("a", True)
    for _ in range(2):
        before = trains(cluster)
        until(lambda: "disk" in fills(putting), "the disk is full")
        assert cluster.report("s1")["full"]
        assert trains(cluster) > before
        assert putting.client.unfinished("a")
        until(lambda: [taking.process("a", 0.1), flushed(putting)][1], "it goes on")
    judged(cluster, putting, taking, "a")


def fills(putting: Putting) -> str:
    """Puts a stream more; why it could not be finished, if it could not."""
    try:
        putting.stream("a", 100)
        putting.flush(2.0)
    except InDoubt as error:
        return error.reason
    return ""


def flushed(putting: Putting) -> bool:
    """Whether everything could be finished."""
    try:
        putting.flush(0.2)
    except InDoubt:
        return False
    return True


def test_a_topic_that_fills_up_within_a_train_takes_the_rest_after_it_was_read(cluster: Cluster) -> None:
    cluster.run(1, 1, backlog_bytes_max=300_000, retention_hold_seconds=1.0, skew_seconds=0.1)
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice", padding=4000)
    taking.intend("a", True)
    putting.stream("a", 200)
    with pytest.raises(InDoubt, match="backlog"):
        putting.flush(1.0)
    assert trains(cluster, counter="trains_ended_early")
    assert 0 < putting.client.unfinished("a") < 200
    until(lambda: [taking.process("a", 0.1), flushed(putting)][1], "it goes on")
    judged(cluster, putting, taking, "a")


def test_a_too_large_second_row_of_a_train_is_refused_and_the_first_is_taken(cluster: Cluster) -> None:
    cluster.run(1, 1, backlog_bytes_max=100_000)
    bob = cluster.client("bob")
    bob.subscribe("a")
    rows = [put("a", n, b"%d" % n * size, previous=n - 1) for n, size in ((1, 10), (2, 200_000), (3, 10))]
    with cluster.wire() as wire:
        for _ in range(2):  # The same again: the first is a duplicate then, and the second is as large as it was.
            answer = wire.ask(train(rows))
            assert (answer.outcome, answer.last, answer.reason) == (Outcome.FULL, 1, "backlog_bytes_max")
        small = put("a", 2, b"small", previous=1)
        answer = wire.ask(train([rows[0], small, rows[2]]))
        assert (answer.outcome, answer.last) == (Outcome.SUCCESS, 3)
    assert [bob.get("a").body for _ in range(3)] == [b"1" * 10, b"small", b"3" * 10]
    assert nothing(bob, "a")
