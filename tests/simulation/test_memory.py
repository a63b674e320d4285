"""The comparison of a server's memory with its store: it finds every difference."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pubsub.server.topic.group import Group
from pubsub.server.topic.group_rows import GroupRow
from tests.simulation.fate import Fate
from tests.simulation.limits import small
from tests.simulation.memory import MEMORY_ONLY, check
from tests.simulation.nodes import ServerNode
from tests.simulation.simulation import Simulation


@pytest.fixture(scope="module")
def server() -> ServerNode:
    """A server that has served for a few seconds."""
    simulation = Simulation(1, Fate(servers=1, proxies=1, topics=1, seconds=3.0, sinks=1))
    with small(Random(0)):
        for node in simulation.cast.nodes:
            node.start()
        simulation.world.run(3.0)
    return simulation.cast.servers[0]


def topic_of(server: ServerNode) -> Any:
    return server.core.state.topics["t1"]


TAMPERINGS: dict[str, Callable[[ServerNode], object]] = {
    "last": lambda server: topic_of(server).last.update({1: 5}),
    "subscriptions": lambda server: topic_of(server).subscriptions.popitem(),
    "history": lambda server: setattr(topic_of(server), "history", topic_of(server).history * 2),
    "contested": lambda server: topic_of(server).contested.update({"0" * 16: "s9"}),
    "frozen": lambda server: setattr(topic_of(server), "frozen", "tcp://s9:3"),
    "merged": lambda server: topic_of(server).merged.add("0" * 16),
    "end": lambda server: setattr(topic_of(server).open, "end", topic_of(server).open.end + 1),
    "names": lambda server: server.core.state.publishers.names.append("another"),
    "held": lambda server: server.core.state.held.update({"t1": "why"}),
    "draining": lambda server: setattr(server.core.proxies, "draining", True),
    "given": lambda server: server.core.state.given.update({"t2": "s2.0,,"}),
    "copy": lambda server: topic_of(server).watermarks.update({9: {1: 1}}),
    "topics": lambda server: server.core.state.topics.clear(),
}


def test_equal_memory_and_store_have_no_difference(server: ServerNode) -> None:
    with small(Random(0)):
        assert not check(server)


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_difference_is_found(what: str) -> None:
    fresh = Simulation(1, Fate(servers=1, proxies=1, topics=1, seconds=2.0))
    with small(Random(0)):
        for node in fresh.cast.nodes:
            node.start()
        fresh.world.run(2.0)
        node = fresh.cast.servers[0]
        TAMPERINGS[what](node)
        assert any(what in line for line in check(node))


def test_every_part_left_out_of_the_comparison_exists(server: ServerNode) -> None:
    core = server.core
    state = core.state
    objects = [core, state, topic_of(server), state.publishers, state.undelivered, core.operations]
    objects += [
        next(iter(topic_of(server).subscriptions.values())).cursor,
        topic_of(server).open,
        core.retention,
        core.staging,
        core.proxies,
        core.contested,
        core.delays,
        topic_of(server).delayed,
        (group := Group("billing", GroupRow(1, True, 0, False, 600_000, 5, 0))),
        group.facts,
    ]
    assert {type(one).__name__ for one in objects} == MEMORY_ONLY.keys()
    for one in objects:
        for name in MEMORY_ONLY[type(one).__name__]:
            assert hasattr(one, name)
