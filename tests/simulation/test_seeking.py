"""Seekers in the simulation: what they take for the end of a replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pubsub.protocol.names import EARLIEST
from tests.simulation.fate import Fate
from tests.simulation.limits import small
from tests.simulation.seeking import Seek, Seeker
from tests.simulation.simulation import Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    """A run in which a client has sought for a while, and takes now all that comes."""
    made = Simulation(1, Fate(servers=1, proxies=1, clients=1, topics=1, seconds=4.0, think=0.05, seekers=1))
    (seeker,) = made.cast.seekers
    seeker.left = 0
    with small(made.world.random, made.cast.counters):
        for node in made.cast.nodes:
            node.start()
        made.world.at(0.5, made.supervisor.watch)
        made.world.run(2.0)
        seeker.finishing = True
        made.world.run(4.2)
        yield made
        for node in (*made.cast.clients, seeker.node):
            node.end("over")


def left(simulation: Simulation, seeker: Seeker) -> int:
    """The number of messages that the server still has for a seeker."""
    topic = simulation.cast.servers[0].core.state.topics[seeker.topic]
    return topic.waiting(topic.subscriptions["x1"].cursor.backlog)


def test_a_call_that_got_no_answer_is_no_sign_that_a_replay_has_all(simulation: Simulation) -> None:
    """Seed 7311000295: the answer with the first six messages of a replay was lost, and the call ended without one."""
    (seeker,) = simulation.cast.seekers
    simulation.world.network.cut("p1", "x1", 5.0)
    simulation.world.run(5.4)
    assert left(simulation, seeker)
    assert not seeker.quiet
    simulation._heal()
    simulation.world.run(12.0)
    assert not left(simulation, seeker)
    assert seeker.quiet


def test_a_look_before_a_seek_says_nothing_about_the_replay(simulation: Simulation) -> None:
    """Seeds 7311000740 and 7311000785: the replay counted as drained before it began."""
    (seeker,) = simulation.cast.seekers
    simulation._heal()
    simulation.world.run(12.0)
    assert seeker.quiet
    seeker._seek(Seek(EARLIEST))
    assert not seeker.quiet
