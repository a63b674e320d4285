"""Requests that come late: through a proxy that was stopped, died, or held them back. Each changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pubsub import Client
from pubsub.errors import NotSubscribed
from pubsub.protocol import Get, Message, Outcome, Put, Subscribe, Unsubscribe
from tests.client.opened import nothing
from tests.faults.cluster import Cluster, until
from tests.faults.sieve import Fate, Sieve
from tests.faults.wire import Wire

pytestmark = pytest.mark.faults


class Late:
    """A client whose first proxy holds back requests of one kind, and whose second does not."""

    def __init__(self, cluster: Cluster, kind: type[Message]) -> None:
        self.holding = False
        self.sieve = Sieve(cluster.addresses[0], self._judge)
        self._kind = kind
        self.client = cluster.client("bob", proxies=[self.sieve.address, cluster.addresses[1]])

    def _judge(self, message: Message) -> Fate:
        return Fate.HOLD if self.holding and isinstance(message, self._kind) else Fate.PASS

    def hold(self) -> None:
        """From now on, and begin at the first proxy again."""
        self.holding = True

    def release(self) -> set[Outcome]:
        """Let them go; what they were answered."""
        held = len(self.sieve.held)
        assert held, "nothing was held back"
        self.sieve.release()
        until(lambda: len(self.sieve.late) == held, "the late requests are answered")
        return {status.outcome for status in self.sieve.late}


@pytest.fixture
def late(cluster: Cluster) -> Iterator[Callable[[type[Message]], Late]]:
    made: list[Late] = []

    def make(kind: type[Message]) -> Late:
        cluster.run(2, 1)
        made.append(Late(cluster, kind))
        return made[-1]

    yield make
    for one in made:
        one.client.close()
        one.sieve.__exit__()


def bodies(client: Client, count: int) -> list[bytes]:
    """The next messages on `a`; then nothing more is there."""
    got: list[bytes] = []
    until(lambda: got.extend(client.get_many("a", timeout=1.0).bodies()) or len(got) >= count, f"{count} messages")
    assert nothing(client, "a")
    return got


def test_a_late_subscribe_does_not_subscribe_a_client_that_left(cluster: Cluster, late) -> None:
    stage = late(Subscribe)
    stage.hold()
    stage.client.subscribe("a")
    stage.client.unsubscribe("a")
    assert stage.release() == {Outcome.SUPERSEDED}
    cluster.client("alice").put("a", b"x")
    assert cluster.report("s1")["topics"]["a"]["subscribers"] == {}
    with pytest.raises(NotSubscribed):
        stage.client.get("a", timeout=0.1)


def test_a_late_subscribe_does_not_move_a_subscriber(cluster: Cluster, late) -> None:
    stage = late(Subscribe)
    stage.hold()
    stage.client.subscribe("a")
    alice = cluster.client("alice")
    alice.put_many("a", [b"1", b"2"])
    assert stage.release() == {Outcome.SUPERSEDED}
    alice.put("a", b"3")
    assert bodies(stage.client, 3) == [b"1", b"2", b"3"]


def test_a_late_unsubscribe_does_not_remove_a_returned_subscriber(cluster: Cluster, late) -> None:
    stage = late(Unsubscribe)
    stage.client.subscribe("a")
    stage.hold()
    stage.client.unsubscribe("a")
    stage.client.subscribe("a")
    alice = cluster.client("alice")
    alice.put("a", b"1")
    assert stage.release() == {Outcome.SUPERSEDED}
    alice.put("a", b"2")
    assert bodies(stage.client, 2) == [b"1", b"2"]


def test_a_late_put_is_a_repeat(cluster: Cluster, late) -> None:
    stage = late(Put)
    eve = cluster.client("eve", proxies=cluster.addresses[1:])
    eve.subscribe("a")
    stage.hold()
    stage.client.put("a", b"1")
    stage.client.put_many("a", [b"2", b"3"])
    assert stage.release() == {Outcome.DUPLICATE}
    stage.client.put("a", b"4")
    assert bodies(eve, 4) == [b"1", b"2", b"3", b"4"]


def test_a_late_get_takes_no_message(cluster: Cluster, late) -> None:
    stage = late(Get)
    stage.client.subscribe("a")
    alice = cluster.client("alice")
    alice.put_many("a", [b"1", b"2"])
    stage.hold()
    assert bodies(stage.client, 2) == [b"1", b"2"]
    alice.put("a", b"3")
    assert bodies(stage.client, 1) == [b"3"]
    position = until(lambda: acknowledged(cluster, 3), "all three are acknowledged")
    stage.release()
    assert acknowledged(cluster, 3) == position
    alice.put("a", b"4")
    assert bodies(stage.client, 1) == [b"4"]
    assert stage.client.subscriptions()["a"]["on"]


def acknowledged(cluster: Cluster, offset: int) -> str:
    """Where bob stands, if it is there; "" before."""
    found = str(cluster.report("s1", proxy=1)["topics"]["a"]["subscribers"]["bob"]["acknowledged"])
    return found if found.endswith(f".{offset}") else ""


@contextmanager
def stopped(cluster: Cluster) -> Iterator[None]:
    """The first proxy is stopped, and then delivers what it was sent meanwhile."""
    cluster.proxies[0].pause()
    yield
    cluster.proxies[0].resume()
    with Wire(cluster.addresses[0]) as wire:
        for _ in range(10):  # It takes turns between its links, so what waited there is through after these.
            until(lambda: wire.report("s1"), "the first proxy knows the server again")


@contextmanager
def killed(cluster: Cluster) -> Iterator[None]:
    """The first proxy dies with what it was sent, and is started again."""
    cluster.proxies[0].kill()
    yield
    cluster.proxies[0].start()
    cluster.proxies[0].ready()


@pytest.mark.parametrize("fault", [stopped, killed])
def test_every_call_is_done_once_by_the_other_of_two_proxies(cluster: Cluster, fault) -> None:
    cluster.run(2, 1)
    bob, eve, alice = (cluster.client(name) for name in ("bob", "eve", "alice"))
    eve.subscribe("a")
    for client in (bob, alice):
        client.subscribe("warm")
    with fault(cluster):
        bob.subscribe("a", fresh=True)  # What is to be continued is asked of both proxies.
        alice.put_many("a", [b"1", b"2"])
        alice.put("a", b"3")
        assert bodies(bob, 3) == [b"1", b"2", b"3"]
        eve.unsubscribe("a")
    assert list(cluster.report("s1")["topics"]["a"]["subscribers"]) == ["bob"]
    alice.put("a", b"4")
    assert bodies(bob, 1) == [b"4"]
    with fault(cluster):
        bob.unsubscribe("a")
        eve.subscribe("a")
        alice.put("a", b"5")
    assert bodies(eve, 1) == [b"5"]
    assert list(cluster.report("s1")["topics"]["a"]["subscribers"]) == ["eve"]
