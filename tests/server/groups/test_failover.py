"""Failover while members hold claims and offers: the standby's store goes on, and nothing else of the primary does.

The standby's store has each commit of the primary, as it travels. The rules are docs/explanation/groups.md, GR2, GR11,
GR16, GR18, GR21 and GR32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.protocol.group_bodies import Dead, Later, Range, Say, Tried
from pubsub.server.storage.store import Store
from pubsub.server.topic.commits import decode, encode
from tests.server.groups.workers import GROUP, TOPIC, Given, Worker, act, another, facts, fill, filled, log_of
from tests.server.stage import Stage
from tests.server.test_commits import FORMS, rows

MODES = pytest.mark.parametrize("mode", ["shared", "keyed"])


class Cluster:
    """A primary, and the directory of its standby."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.primary = directory, Stage(directory / "primary")
        self.primary.commits = []
        self.closed = False

    def fail_over(self, *workers: Worker) -> Stage:
        """Let the standby take over, and these workers speak to it."""
        commits, primary = self.primary.commits, self.primary
        assert commits
        twin = Store(self.directory / "standby")
        for place, commit in enumerate(commits):
            with twin.guarded():
                twin.apply(decode(encode(commit, FORMS[place % 2])).changes)
        assert rows(twin) == rows(primary.store)
        twin.close()
        primary.close()
        self.primary = Stage(self.directory / "standby")
        self.primary.now = primary.now + 1
        for worker in workers:
            worker.stage = self.primary
        return self.primary


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.primary.close()


def of(stage: Stage, low: int, high: int) -> Range:
    keyed = stage.core.state.topics[TOPIC].groups[GROUP].keyed
    return Range(log_of(stage), low, high, 0 if keyed else None)


@MODES
def test_claims_go_on_and_offers_do_not(cluster: Cluster, mode: str) -> None:
    stage = cluster.primary
    one = filled(stage, 6, mode, parts=int(mode == "keyed"))
    late = one.message()
    one.work(2)
    assert one.work(2, claim=False, keep=[of(stage, 1, 3)]).offered == (of(stage, 3, 5),)
    message = one.message(Say(keep=(of(stage, 1, 3),), offered=(of(stage, 3, 5),)))
    stage.ask(message)
    stage = cluster.fail_over(one)
    assert facts(stage)["claimed"] == 2
    assert stage.ask(late).reason == "a_later_message_came"
    two = another(one, "w2")
    given = two.work(9)
    assert given.bodies == ([b"3", b"4", b"5", b"6"] if mode == "shared" else [])
    again = Given(stage.ask(message))  # The answer of the primary was lost.
    assert (again.held, again.offered, again.bodies) == ((of(stage, 1, 3),), (), [])
    one.work(0, done=[of(stage, 1, 3)])
    if mode == "keyed":
        assert two.work(9).bodies == [b"3", b"4", b"5", b"6"]


def test_attempts_letters_marks_and_delays_go_on(cluster: Cluster) -> None:
    stage = cluster.primary
    one = filled(stage, 6)
    log = log_of(stage)
    one.work(5)
    stage.sleep(4)
    number = facts(stage, "members")["members"][0]["number"]
    act(stage, "release", one.subscription, member="w1", store=one.store, number=number)
    two = another(one, "w2")
    two.work(5)
    two.work(
        0,
        tried=[Tried(log, 1, 3)],
        later=[Later(log, 2, 60_000, 2)],
        dead=[Dead(log, 3, 2, "bad")],
        keep=[Range(log, 4, 6)],
    )
    stage = cluster.fail_over(two)
    told = facts(stage)
    assert (told["claimed"], told["dead_letters"], told["delayed"]) == (2, 1, 2)
    stage.sleep(10)
    given = two.work(9, keep=[Range(log, 4, 6)])
    assert sorted(given.bodies) == [b"1", b"6"]
    assert (given.line(1).attempts, given.line(1).doubtful, given.line(4).doubtful) == (3, True, True)
    stage.sleep(60)
    later = two.work(9, keep=[Range(log, 4, 6)], done=[Range(log, 1, 2), Range(log, 6, 7)])
    assert (later.bodies, later.line(2).attempts, later.line(2).doubtful) == ([b"2"], 2, True)
    act(stage, "redrive", one.subscription)
    last = two.work(9, keep=[Range(log, 4, 6)], done=[Range(log, 2, 3)])
    assert (last.bodies, last.line(3).attempts, last.line(3).doubtful) == ([b"3"], 2, True)
    assert facts(stage)["counts"]["done_after_release"] == 2


@MODES
def test_a_group_that_gives_up_counts_the_silence_from_the_takeover(cluster: Cluster, mode: str) -> None:
    """Each delivery after it carries the mark. The rule is docs/explanation/groups.md, GR11."""
    stage = cluster.primary
    one = filled(stage, 3, mode, parts=int(mode == "keyed"), on_lost="redeliver", lost_ms=10_000)
    one.work(2)
    stage.sleep(8)
    stage = cluster.fail_over(one)
    two = another(one, "w2")
    assert two.work(9, claim=False).offered == (() if mode == "keyed" else (of(stage, 3, 4),))
    for _ in range(3):
        stage.sleep(2)
        two.work(0, claim=False)
    assert facts(stage)["claimed"] == 2
    stage.sleep(6)
    given = two.work(9)
    assert given.bodies == [b"1", b"2", b"3"]
    assert next((line.range, line.doubtful) for line in given.lines) == (of(stage, 1, 3), True)
    assert one.work(0, done=[of(stage, 1, 2)], keep=[of(stage, 2, 3)]).held == ()
    assert two.work(0, keep=given.held).held == (of(stage, 2, 3), of(stage, 3, 4))
    stage.sleep(12)  # The second member goes silent, too.
    third = another(one, "w3").work(9)
    assert third.bodies == [b"2", b"3"]
    assert all(line.doubtful for line in third.lines)


def test_the_order_of_a_part_through_a_release_a_retry_a_late_done_and_a_failover(cluster: Cluster) -> None:
    """The rule is docs/explanation/groups.md, GR16."""
    stage = cluster.primary
    one = filled(stage, 5, "keyed", parts=1)
    log = log_of(stage)
    one.work(3)
    late = one.message(Say(done=(of(stage, 1, 2),), keep=(of(stage, 2, 4),)))
    stage.sleep(4)
    number = facts(stage, "members")["members"][0]["number"]
    act(stage, "release", one.subscription, member="w1", store=one.store, number=number)
    two = another(one, "w2")
    assert two.work(2).bodies == [b"1", b"2"]
    two.work(0, tried=[Tried(log, 1, 3)])  # All behind it goes back, too.
    stage = cluster.fail_over(one, two)
    assert two.work(9).bodies == []  # The part waits for its front.
    assert Given(stage.ask(late)).held == ()  # It is done: the part goes on at once.
    given = two.work(9)
    assert given.bodies == [b"2", b"3", b"4", b"5"]
    assert [line.doubtful for line in given.lines] == [True, False]
    assert one.work(9).bodies == []


def test_two_members_swap_parts_and_a_failover_does_not_split_a_part(cluster: Cluster) -> None:
    """The rules are docs/explanation/groups.md, GR16 and GR32."""
    stage = cluster.primary
    one = filled(stage, 20, "keyed", parts=2, keys=20)
    first = one.work(1)
    two = another(one, "w2")
    second = two.work(1)
    (mine,), (its,) = first.held, second.held
    assert {mine.part, its.part} == {0, 1}
    one.work(9, done=[mine])
    two.work(9, done=[its])
    held = {client: claims(stage, client) for client in ("w1", "w2")}
    stage = cluster.fail_over(one, two)
    assert {client: claims(stage, client) for client in ("w1", "w2")} == held
    # Both give all back, and each asks first for what the other one had.
    one.work(0)
    two.work(0)
    fill(stage, 21, 22, keys=20)
    bodies = [*two.work(99).bodies, *one.work(99).bodies]
    parts = [{piece.part for piece in claims(stage, client)} for client in ("w1", "w2")]
    assert parts[0].isdisjoint(parts[1])
    two.work(0, done=claims(stage, "w2"))
    one.work(0, done=claims(stage, "w1"))
    bodies += [*one.work(99).bodies, *two.work(99).bodies]
    handled = {int(body) for body in (*first.bodies, *second.bodies)}
    assert sorted(map(int, bodies)) == sorted({*range(1, 23)} - handled)


def claims(stage: Stage, client: str) -> list[Range]:
    group = stage.core.state.topics[TOPIC].groups[GROUP]
    found = [member for (name, _), member in group.members.items() if name == client]
    return [group.shown(*piece) for member in found for piece in member.pieces()]
