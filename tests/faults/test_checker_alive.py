"""The checker finds the violations of a broken server, and none in the same run with a right one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pubsub.client.core.cursor import Cursor
from pubsub.protocol import Message, Put
from tests.faults.checker import check
from tests.faults.cluster import Cluster
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking
from tests.faults.sieve import Fate, Sieve

pytestmark = pytest.mark.faults
Play = Callable[[Cluster, Path], None]


def every_other(fate: Fate) -> Callable[[Message], Fate]:
    """Judges puts on `a`: every other one has this fate, the first included."""
    counters: list[int] = []

    def judge(message: Message) -> Fate:
        if not isinstance(message, Put) or message.counter in counters:
            return Fate.PASS
        counters.append(message.counter)
        return fate if len(counters) % 2 else Fate.PASS

    return judge


def answers_are_lost(cluster: Cluster, _: Path) -> None:
    """One by one: in a pipeline the next answer would say that the one before is there too."""
    through_a_sieve(cluster, Fate.UNANSWERED, wait=True)


def puts_are_lost(cluster: Cluster, _: Path) -> None:
    """Out of a pipeline."""
    through_a_sieve(cluster, Fate.DROP, wait=False)


def through_a_sieve(cluster: Cluster, fate: Fate, *, wait: bool) -> None:
    """Messages are put, and every other one or its answer is lost."""
    taking = Taking(cluster.client("bob"))
    taking.intend("a", True)
    with (
        Sieve(cluster.addresses[0], every_other(fate)) as sieve,
        cluster.client("alice", proxies=[sieve.address]) as alice,
    ):
        putting = Putting(alice, "alice")
        for _ in range(6):
            putting.put("a", wait=wait)
        putting.flush()
    put_end(cluster, ["a"])
    taking.drain("a")


def nothing_happens(cluster: Cluster, _: Path) -> None:
    """Messages are put and taken."""
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    for _ in range(2):
        putting.put_many("a", 5)
        while not taking.process("a", 1.0):
            pass
    put_end(cluster, ["a"])
    taking.drain("a")


def the_server_dies(cluster: Cluster, begin: Path) -> None:
    """The server is killed when it has answered, and started again."""
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    putting.put("a")
    begin.touch()
    putting.put_many("a", 5)
    cluster.servers[0].kill()
    begin.unlink()
    cluster.servers[0].start()
    put_end(cluster, ["a"])
    taking.drain("a")


@pytest.mark.parametrize(
    ("breakage", "play", "kind"),
    [
        ("take_repeats", answers_are_lost, "repeated"),
        ("answer_before_commit", the_server_dies, "lost"),
        ("ignore_last", nothing_happens, "repeated"),
        ("take_without_predecessors", puts_are_lost, "lost"),
    ],
)
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "right"])
def test_the_checker_finds_a_faulty_server(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breakage: str,
    play: Play,
    kind: str,
    broken: bool,
) -> None:
    # The client's own net catches most of what a broken server doubles: here it is to be seen.
    monkeypatch.setattr(Cursor, "taken", property(lambda _: {}))
    begin = tmp_path / "begin"
    entry = ("-m", "tests.faults.broken_server", breakage if broken else "not_at_all", str(begin))
    cluster.run(1, 1, entry=entry)
    play(cluster, begin)
    for client in cluster.clients:
        client.close()
    kinds = {objection.kind for objection in check([cluster.state("alice")], [cluster.state("bob")])}
    assert kind in kinds if broken else not kinds
