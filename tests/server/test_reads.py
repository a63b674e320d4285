"""Range reads: any process may read them, as often as it likes, and nothing changes by that.

The rules are those of docs/explanation/spark-exchange.md, K2 and K7.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol import (
    Outcome,
    Position,
    Read,
    format_position,
    parse_position,
)
from pubsub.server.requests import reads as module
from pubsub.server.topic import delivery
from pubsub.server.topic.topic import Log
from tests.server.moving import Pair, split
from tests.server.named import acknowledge, everything, make, plan, read
from tests.server.stage import Stage, bodies, put


def test_reading_changes_nothing_and_may_be_repeated(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b", b"c", b"d"]).log
    for _ in range(3):
        got = read(stage, (log, 1), (log, 3))
        assert bodies(got) == [b"b", b"c"]
        assert got.message == (log, 3)
        stage.restart()
    assert plan(stage, None)["position"] == (log, 0)


def test_messages_put_in_the_same_loop_are_read(stage: Stage) -> None:
    make(stage)
    stage.say(put("t", 1, [b"a"]))
    callback = stage.say(Read("worker", "t", None, name="archive", records_max=10))
    stage.loop()
    assert bodies(stage.answered(callback)) == [b"a"]


def test_a_range_comes_in_answers_of_the_size_asked_for(stage: Stage) -> None:
    make(stage)
    for counter in range(1, 8):
        stage.put("t", counter, [b"%d" % counter])
    assert len(bodies(read(stage, None, records_max=2))) == 2
    assert len(bodies(read(stage, None, bytes_max=3))) == 3
    assert everything(stage, records_max=2) == [b"%d" % counter for counter in range(1, 8)]


def test_an_empty_range_is_empty_and_returns_its_end(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b"]).log
    answer = read(stage, (log, 2), (log, 2))
    assert (answer.outcome, answer.message) == (Outcome.EMPTY, (log, 2))
    answer = read(stage, (log, 2))
    assert (answer.outcome, answer.message) == (Outcome.EMPTY, (log, 2))


@pytest.mark.parametrize(
    ("after", "until"),
    [(5, None), (1, 5), (3, 2), (None, 5)],
    ids=["from beyond the end", "to beyond the end", "backwards", "all and more"],
)
def test_a_range_that_does_not_exist_is_behind(stage: Stage, after: int | None, until: int | None) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b", b"c"]).log
    answer = read(stage, None if after is None else (log, after), None if until is None else (log, until))
    assert (answer.outcome, answer.position) == (Outcome.BEHIND, (log, 0))


def test_a_range_of_an_unknown_log_is_behind(stage: Stage) -> None:
    make(stage)
    stage.put("t", 1)
    assert read(stage, ("f" * 16, 1)).outcome is Outcome.BEHIND
    assert read(stage, None, ("f" * 16, 1)).outcome is Outcome.BEHIND


def test_a_read_without_a_topic_or_a_subscription_is_unknown(stage: Stage) -> None:
    assert read(stage, None).reason == "topic"
    assert acknowledge(stage, None).reason == "topic"
    assert stage.core.state.topics == {}
    stage.put("t", 1)
    assert read(stage, None).reason == "subscription"
    assert acknowledge(stage, None).reason == "subscription"


def test_a_read_without_a_name_returns_all_stored_messages(stage: Stage) -> None:
    stage.put("t", 1, [b"a"])
    stage.subscribe("bob", "t", 5)
    stage.put("t", 2, [b"b"])
    assert everything(stage, name="") == [b"a", b"b"]
    stage.sleep(200)
    assert everything(stage, name="") == [b"b"], "what nobody waits for went"


def test_lost_records_are_reported_and_the_range_continues_behind_them(stage: Stage) -> None:
    make(stage)
    log = [stage.put("t", counter, [b"%d" % counter]).log for counter in (1, 2, 3, 4)][-1]
    number = stage.core.state.topics["t"].open.number
    stage.restart()
    stage.store.db.execute("delete from batch where key in (?, ?)", (number << 40 | 2, number << 40 | 3))
    assert bodies(read(stage, None)) == [b"1"]
    lost = read(stage, (log, 1))
    assert (lost.outcome, lost.first, lost.message) == (Outcome.LOST, (log, 2), (log, 3))
    assert bodies(read(stage, (log, 3))) == [b"4"]


def test_a_changed_batch_is_lost_and_set_aside(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a"]).log
    number = stage.core.state.topics["t"].open.number
    stage.restart()
    stage.store.db.execute("update batch set body = x'00' where key = ?", (number << 40 | 1,))
    lost = read(stage, None)
    assert (lost.outcome, lost.first, lost.message) == (Outcome.LOST, (log, 1), (log, 1))
    assert stage.store.db.execute("select count(*) from quarantine").fetchall() == [(1,)]


def test_reads_beyond_the_limit_are_refused_and_one_loop_delivers_a_bounded_amount(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(stage)
    stage.put("t", 1, [b"x" * 100])
    monkeypatch.setattr(module, "READS_MAX", 3)
    monkeypatch.setattr(module, "READ_BYTES_MAX", 250)
    asked = [stage.say(Read("worker", "t", None, name="archive", records_max=9)) for _ in range(4)]
    stage.loop()
    assert stage.answered(asked[3]).outcome is Outcome.BUSY
    assert stage.answer(asked[2]) is None, "left to the next loop"
    assert stage.core.deadline() <= stage.now
    stage.loop()
    assert [bodies(stage.answered(callback)) for callback in asked[:3]] == [[b"x" * 100]] * 3


# The plan


def test_a_plan_has_the_position_the_ranges_and_their_sizes(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b"]).log
    stage.put("t", 3, [b"c"])
    size = stage.core.state.topics["t"].open.total
    facts = plan(stage, None)
    assert facts == {
        "position": (log, 0),
        "latest": f"{log}.3",
        "within": f"{log}.3",
        "legs": [[log, 1, 4, size]],
    }
    acknowledge(stage, (log, 2))
    facts = plan(stage, (log, 2), (log, 3))
    assert (facts["position"], facts["legs"][0][:3]) == ((log, 2), [log, 3, 4])
    assert plan(stage, (log, 3)) == {
        "position": (log, 2),
        "latest": f"{log}.3",
        "within": f"{log}.3",
        "legs": [],
    }


def test_a_plan_shows_how_far_the_given_bytes_reach(stage: Stage) -> None:
    make(stage)
    log = [stage.put("t", counter, [b"x" * 100, b"y" * 100]).log for counter in range(1, 21, 2)][-1]
    sole_owner = plan(stage, None)["legs"][0][3]
    one = sole_owner // 10
    for budget, offset in ((1, 2), (one, 2), (2 * one, 4), (2 * one + 5, 4), (sole_owner - 1, 18), (sole_owner, 20)):
        assert plan(stage, None, bytes_max=budget)["within"] == f"{log}.{offset}", budget
    assert plan(stage, (log, 2), bytes_max=one)["within"] == f"{log}.4"
    assert plan(stage, (log, 3), bytes_max=1)["within"] == f"{log}.4"


# Acknowledging, and what stays


def test_unacknowledged_messages_stay_after_any_number_of_reads(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a"]).log
    stage.put("t", 2, [b"b"])
    everything(stage)
    stage.sleep(300)
    assert everything(stage) == [b"a", b"b"]
    acknowledge(stage, (log, 1))
    stage.sleep(300)
    assert stage.core.state.topics["t"].open.low == 2
    assert everything(stage) == [b"b"]


def test_a_read_of_a_topic_on_its_way_is_answered_moved(stage: Stage) -> None:
    make(stage)
    stage.put("t", 1)
    waiting = stage.say(Read("worker", "t", None, name="archive", records_max=9))
    stage.core.state.topics["t"].frozen = "tcp://127.0.0.1:9"
    stage.loop()
    assert stage.answered(waiting).outcome is Outcome.MOVED
    assert make(stage).outcome is Outcome.MOVED
    assert acknowledge(stage, None).outcome is Outcome.MOVED


def test_a_topic_that_is_held_back_while_a_read_waits_is_not_read(stage: Stage) -> None:
    make(stage)
    stage.put("t", 1)
    waiting = stage.say(Read("worker", "t", None, name="archive", records_max=9))
    stage.core.quarantine.hold_back(stage.core.state.topics["t"], "says the test")
    stage.loop()
    assert stage.answered(waiting).outcome is Outcome.UNAVAILABLE


def test_a_read_that_waited_during_a_join_asks_whether_the_topic_is_whole(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1).log
    stage.sole_owner = False
    waiting = stage.say(Read("worker", "t", (log, 1), name="archive", records_max=9))
    topic = stage.core.state.topics["t"]
    topic.ended.add(log)  # As a join brings it.
    topic.go_on_in(Log(99, "00000000000000aa"), OFFSET_MAX)
    for _ in range(3):
        stage.loop()
    assert stage.answered(waiting).outcome is Outcome.BUSY


# After a join


def by_parts(stage: Stage, positions: list[Position | None]) -> list[bytes]:
    """The records between each position and the next."""
    out: list[bytes] = []
    for after, until in pairwise(positions):
        out += everything(stage, after, until)
    return out


@pytest.mark.parametrize("receiver", ["s1", "s2"])
def test_positions_survive_a_join_on_either_side_and_nothing_is_read_twice(pair: Pair, receiver: str) -> None:
    pair["s1"].sole_owner = True
    stage = pair["s1"]
    make(stage, "earliest")
    split(pair)
    stage.put("t", 30, [b"alice3"], previous=11)
    start = make(stage).position
    middle = read(stage, None, records_max=2).message
    end = parse_position(plan(stage, None)["latest"])
    before = everything(stage, start, end)
    assert before == [b"alice1", b"alice2", b"alice3"]
    giver = "s1" if receiver == "s2" else "s2"
    pair.merge(giver, receiver)
    pair.turns()
    assert pair.holders() == [receiver]
    joined = pair[receiver]
    joined.restart()
    assert make(joined).position == start
    assert everything(joined, start, end) == before, "a batch that is replayed is the same"
    assert by_parts(joined, [start, middle, end]) == before
    joined.put("t", 40, [b"alice4"], previous=30)
    assert everything(joined, start) == [*before, b"carl1", b"carl2", b"alice4"]
    latest = parse_position(plan(joined, None)["latest"])
    parts = [middle, *[read(joined, middle, records_max=n).message for n in (1, 2, 3)], latest]
    assert by_parts(joined, parts) == [b"alice3", b"carl1", b"carl2", b"alice4"]
    assert acknowledge(joined, end).outcome is Outcome.EMPTY
    assert everything(joined) == [b"carl1", b"carl2", b"alice4"]
    assert format_position(latest) == plan(joined, end)["latest"]


def test_messages_of_both_sides_are_read_once(pair: Pair) -> None:
    stage = pair["s1"]
    make(stage, "earliest")
    both = put("t", 50, [b"both1", b"both2"])
    stage.ask(both)
    pair["s2"].ask(both)
    pair["s2"].put("t", 60, [b"more"], previous=51)
    pair.merge("s2", "s1")
    pair.turns()
    assert everything(stage) == [b"both1", b"both2", b"more"]


def test_a_completely_skipped_range_is_passed_in_steps(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 2)
    stage = pair["s1"]
    make(stage, "earliest")
    for counter in range(1, 8):
        stage.put("t", counter, [b"%d" % counter], previous=counter - 1)
        pair["s2"].put("t", counter, [b"%d" % counter], previous=counter - 1)
    pair.merge("s2", "s1")
    pair.turns()
    stage.put("t", 8, [b"8"], previous=7)
    assert everything(stage) == [b"%d" % counter for counter in range(1, 9)]


def test_a_range_skipped_to_its_end_in_one_look_is_passed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = pair["s1"]
    make(stage, "earliest")
    for counter in (1, 2):
        stage.put("t", counter, [b"%d" % counter], previous=counter - 1)
        pair["s2"].put("t", counter, [b"%d" % counter], previous=counter - 1)
    own = stage.core.state.topics["t"].open
    pair.merge("s2", "s1")
    pair.turns()
    stage.put("t", 3, [b"3"], previous=2)
    end = parse_position(plan(stage, None)["latest"])
    monkeypatch.setattr(delivery, "BATCHES_MAX", 2)
    assert everything(stage, (own.id, 2), end) == [b"3"]


def test_a_moved_topic_keeps_its_named_subscriptions(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    stage = pair["s1"]
    make(stage, "earliest")
    log = stage.put("t", 1, [b"a", b"b"]).log
    acknowledge(stage, (log, 1))
    pair.merge("s1", "s2")
    pair.turns()
    moved = pair["s2"]
    assert make(moved).position == (log, 1)
    moved.put("t", 3, [b"c"], previous=2)
    assert everything(moved, (log, 1)) == [b"b", b"c"]
    pair.close()
