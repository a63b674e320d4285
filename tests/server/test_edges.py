"""The limits of a join's guarantees: clocks. Two servers apart, one with a wrong clock, then joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol import Subscribe, Unsubscribe
from tests.server.moving import ADDRESS, Pair, put, take
from tests.server.stage import Stage

HOUR = 3600.0


class Clocks(Pair):
    """Servers apart, with wall clocks that differ by so much; both bound skew to five seconds."""

    def __init__(self, directory: Path, ahead: float) -> None:
        super().__init__(directory, "s1", "s2")
        for name, seconds in (("s1", 0.0), ("s2", ahead)):
            self[name].close()
            stage = Stage(directory / name, id=name, advertise=ADDRESS[name], skew_seconds=5.0)
            stage.confirms = True
            stage.wall += seconds
            stage.restart()
            self.stages[name] = stage

    def live(self, seconds: float) -> None:
        for stage in self.stages.values():
            stage.now += seconds


@pytest.fixture
def clocks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Clocks]:
    made = Clocks(tmp_path, request.param)
    yield made
    made.close()


def history(clocks: Clocks) -> None:
    """Alice puts at s1, carl at s2; bob comes to s1, eve to s2, each between two puts, ten seconds from either."""
    s1, s2 = clocks["s1"], clocks["s2"]
    put(s1, "alice", 10, 0, b"a1")
    put(s2, "carl", 10, 0, b"c1")
    clocks.live(10.0)
    s1.ask(Subscribe("bob", "t", 5, 5))
    s2.ask(Subscribe("eve", "t", 5, 5))
    clocks.live(10.0)
    put(s1, "alice", 11, 10, b"a2")
    put(s2, "carl", 11, 10, b"c2")


@pytest.mark.parametrize("clocks", [0.0, 3.0, -3.0], indirect=True)
def test_no_message_is_lost_or_early_within_the_bound_on_skew(clocks: Clocks) -> None:
    history(clocks)
    clocks.merge("s2", "s1")
    clocks.turns()
    assert clocks.holders() == ["s1"]
    assert sorted(take(clocks["s1"], "bob")) == [b"a2", b"c2"]
    assert sorted(take(clocks["s1"], "eve")) == [b"a2", b"c2"]


@pytest.mark.parametrize("clocks", [0.0, 4.5, -4.5], indirect=True)
def test_a_put_right_after_a_subscription_is_not_lost_within_the_bound_on_skew(clocks: Clocks) -> None:
    s1, s2 = clocks["s1"], clocks["s2"]
    s1.ask(Subscribe("bob", "t", 5, 5))
    s2.ask(Subscribe("eve", "t", 5, 5))
    clocks.live(0.1)
    put(s1, "alice", 10, 0, b"a1")
    put(s2, "carl", 10, 0, b"c1")
    clocks.merge("s2", "s1")
    clocks.turns()
    assert take(s1, "bob") == [b"a1", b"c1"]
    assert take(s1, "eve") == [b"c1", b"a1"]


@pytest.mark.parametrize("clocks", [HOUR, -HOUR], indirect=True)
def test_a_clock_wrong_by_an_hour_breaks_only_decisions_by_stamps(clocks: Clocks) -> None:
    ahead = clocks["s2"].wall > clocks["s1"].wall
    history(clocks)
    clocks["s1"].ask(Subscribe("dan", "t", 5, 5))
    clocks["s2"].ask(Subscribe("dan", "t", 6, 6))
    clocks["s2"].ask(Unsubscribe("dan", "t", 7, 6))
    clocks.merge("s2", "s1")
    clocks.turns()
    stage = clocks["s1"]
    # What each had where it subscribed comes, whatever the clocks say; so does the order of a publisher.
    bob, eve = take(stage, "bob"), take(stage, "eve")
    assert b"a2" in bob
    assert b"c2" in eve
    # From the other side: a clock ahead lets what is older come too, one behind keeps what is newer away.
    assert [body for body in bob if body.startswith(b"c")] == ([b"c1", b"c2"] if ahead else [])
    assert [body for body in eve if body.startswith(b"a")] == ([] if ahead else [b"a1", b"a2"])
    # Numbers and counters know no clock: the unsubscription stays one, and repeats stay recognised.
    assert not stage.core.state.topics["t"].subscriptions["dan"].on
    assert put(stage, "carl", 11, 10, b"c2") == "duplicate"
    assert put(stage, "carl", 12, 11, b"c3") == "success"
    assert take(stage, "bob", last=stage.core.state.topics["t"].subscriptions["bob"].cursor.acknowledged) == [b"c3"]


@pytest.mark.parametrize("clocks", [0.0], indirect=True)
@pytest.mark.parametrize("jump", [HOUR, -HOUR, 30 * 24 * HOUR, -30 * 24 * HOUR])
def test_a_wall_clock_that_jumps_while_servers_run_changes_nothing(clocks: Clocks, jump: float) -> None:
    put(clocks["s1"], "alice", 10, 0, b"a1")
    clocks["s2"].wall += jump  # A process reads it once, when it starts.
    history_after = [b"a2", b"c2"]
    put(clocks["s2"], "carl", 10, 0, b"c1")
    clocks.live(10.0)
    clocks["s1"].ask(Subscribe("bob", "t", 5, 5))
    clocks.live(10.0)
    put(clocks["s1"], "alice", 11, 10, b"a2")
    put(clocks["s2"], "carl", 11, 10, b"c2")
    clocks.merge("s2", "s1")
    clocks.turns()
    assert sorted(take(clocks["s1"], "bob")) == history_after


@pytest.mark.parametrize("clocks", [0.0], indirect=True)
@pytest.mark.parametrize("jump", [HOUR / 2, -HOUR, -30 * 24 * HOUR])
def test_a_restarted_server_with_a_wrong_clock_continues_above_every_received_stamp(
    clocks: Clocks, jump: float
) -> None:
    history(clocks)
    stage = clocks["s2"]
    highest = stage.core.state.stamps.last
    stage.wall += jump
    stage.restart()
    stage.core.state.stamps.follow(clocks["s1"].core.state.stamps.last, stage.now)
    put(stage, "carl", 12, 11, b"c3")
    assert stage.core.state.stamps.last > max(highest, clocks["s1"].core.state.stamps.last)
    clocks.merge("s2", "s1")
    clocks.turns()
    for who in ("bob", "eve"):
        assert sorted(take(clocks["s1"], who)) == [b"a2", b"c2", b"c3"]
