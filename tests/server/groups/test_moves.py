"""Groups when their topic moves, and when two holders of it become one (GR12, GR13, GR14)."""

from __future__ import annotations

import pytest

from pubsub.protocol import Outcome, Unsubscribe
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.deletions import Deleted
from pubsub.protocol.group_bodies import Dead, Range, Say, Tried
from tests.server.groups.workers import GROUP, TOPIC, Worker, act, another, facts, fill, filled, log_of
from tests.server.moving import Pair
from tests.server.stage import Stage, put


def moved(worker: Worker, stage: Stage) -> Worker:
    """The same process at another server."""
    worker.stage = stage
    worker.number += 1_000_000
    return worker


def test_claims_numbers_retries_and_letters_travel(pair: Pair) -> None:
    """The rule is docs/explanation/groups.md, GR13."""
    one = filled(pair["s1"], 6, attempts=3)
    log = log_of(pair["s1"])
    one.work(4)
    late = one.message()
    one.work(0, keep=[Range(log, 1, 3)], dead=[Dead(log, 3, 1, "bad")], tried=[Tried(log, 4, 1)])
    pair.merge("s1", "s2")
    pair.turns()
    assert "t" not in pair["s1"].core.state.topics
    two = pair["s2"]
    told = facts(two)
    assert (told["claimed"], told["dead_letters"], told["waiting"]) == (2, 1, 3)
    assert facts(two, "dead")["dead"][0]["reason"] == "bad"
    assert two.ask(late).reason == "a_later_message_came"
    one = moved(one, two)
    assert one.work(0, keep=[Range(log, 1, 3)]).held == (Range(log, 1, 3),)
    two.sleep(2)
    given = one.work(9, keep=[Range(log, 1, 3)])
    assert sorted(given.bodies) == [b"4", b"5", b"6"]
    assert given.line(4).attempts == 1
    act(two, "redrive", one.subscription)
    assert one.work(9, keep=given.held).bodies == [b"3"]
    two.restart()
    assert facts(two)["claimed"] == 6


@pytest.mark.parametrize("mode", ["shared", "keyed"])
def test_a_merge_hands_out_the_other_logs_records_after_the_groups_own(pair: Pair, mode: str) -> None:
    """The rule is docs/explanation/groups.md, GR14."""
    one = filled(pair["s1"], 3, mode, **({"parts": 4} if mode == "keyed" else {}))
    first = one.work(1)
    fill(pair["s2"], 1, 3)  # The same publisher's records, retried at the other holder.
    fill(pair["s2"], 1, 2, sender="bob")
    pair.merge("s2", "s1")
    pair.turns()
    fill(pair["s1"], 4, 5)
    rest = one.work(100, keep=first.held)
    numbers = [int(body) for place, body in rest.records.items() if rest.publishers[place].startswith("alice")]
    assert numbers == [2, 3, 4, 5]
    assert sorted(body for place, body in rest.records.items() if rest.publishers[place].startswith("bob")) == [
        b"1",
        b"2",
    ]


@pytest.mark.parametrize("giver", ["s1", "s2"])
def test_what_went_back_comes_before_the_other_log_after_a_merge(pair: Pair, giver: str) -> None:
    one = filled(pair["s1"], 4, "keyed", parts=1)
    log = log_of(pair["s1"])
    one.work(4)
    fill(pair["s2"], 1, 5)
    pair.merge(giver, "s2" if giver == "s1" else "s1")
    pair.turns()
    there = moved(one, pair["s2" if giver == "s1" else "s1"])
    fill(there.stage, 6, 6)
    assert there.work(0, done=[Range(log, 1, 2, 0)]).held == ()
    two = another(there, "w2")
    assert [int(body) for body in two.work(100).bodies] == [2, 3, 4, 5, 6]


def test_a_holder_without_the_group_does_not_know_it(pair: Pair) -> None:
    """The rule is docs/explanation/groups.md, GR12."""
    one = filled(pair["s1"], 2)
    fill(pair["s2"], 1, 1)
    other = moved(another(one, "w2"), pair["s2"])
    answer = other.status(records_max=5)
    assert (answer.outcome, answer.reason, answer.log) == (Outcome.UNKNOWN, "group", log_of(pair["s2"]))


def test_a_group_is_made_and_begun_only_by_a_sole_owner(stage: Stage) -> None:
    """The rule is docs/explanation/groups.md, GR12."""
    fill(stage, 1, 1)
    one = Worker(stage, "w1")
    stage.sole_owner = False
    assert one.subscribe().outcome is Outcome.BUSY
    stage.sole_owner = True
    one.subscribe()
    stage.sole_owner = False
    assert one.status(records_max=5).outcome is Outcome.BUSY
    stage.sole_owner = True
    assert one.work(5).bodies == [b"1"]
    stage.sole_owner = False
    assert one.work(0).held == ()


def test_a_merge_keeps_the_group_with_the_higher_number(pair: Pair) -> None:
    one = filled(pair["s1"], 2)
    log = log_of(pair["s1"])
    one.work(2)
    fill(pair["s2"], 1, 1, sender="bob")
    again = Worker(pair["s2"], "w1", opening=one.number + 5_000_000)
    again.subscribe("keyed", parts=2)
    pair.merge("s1", "s2")
    pair.turns()
    told = facts(pair["s2"])
    assert (told["number"], told["parts"], told["claimed"]) == (again.subscription, 2, 0)
    assert sorted(again.work(100).bodies) == [b"1", b"1", b"2"]
    assert "%billing" not in pair["s2"].core.state.topics["t"].subscriptions or not (
        pair["s2"].core.state.topics["t"].subscriptions["%billing"].on
    )
    pair["s2"].restart()
    assert log in pair["s2"].core.state.topics["t"].logs


def test_a_waiting_message_is_told_that_the_topic_moves(pair: Pair) -> None:
    one = filled(pair["s1"], 0)
    one.work()
    waits = one.send(records_max=5, claim=1, wait_ms=30_000)
    pair.turn()
    pair.merge("s1", "s2")
    pair.turns()
    assert pair["s1"].answered(waits).outcome is Outcome.MOVED


def test_a_topic_with_a_group_is_not_given_to_an_earlier_release(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(pair["s1"], 2)
    monkeypatch.setattr("pubsub.server.moves.receiving.READS", 3)
    pair.merge("s1", "s2")
    pair.turns()
    assert not pair["s1"].core.state.topics["t"].frozen


def test_a_batch_of_both_logs_has_its_effect_once(pair: Pair) -> None:
    """The rule is docs/explanation/groups.md, GR14."""
    stage = pair["s1"]
    stage.ask(put("t", 1, [b"1", b"2", b"3"]))
    one = Worker(stage, "w1")
    one.subscribe()
    pair["s2"].ask(put("t", 1, [b"1", b"2"]))
    pair["s2"].ask(put("t", 3, [b"3", b"4"], previous=2))
    pair.merge("s2", "s1")
    pair.turns()
    given = one.work(100)
    assert given.bodies == [b"1", b"2", b"3", b"4"]
    back = one.work(0)
    assert back.held == ()
    assert another(one, "w2").work(100).bodies == [b"1", b"2", b"3", b"4"]


def test_a_group_is_not_ended_by_a_holder_that_does_not_have_it(pair: Pair) -> None:
    """The rules are docs/explanation/groups.md, GR12 and GR29."""
    one = filled(pair["s1"], 2)
    fill(pair["s2"], 1, 1)
    pair["s2"].sole_owner = False
    end = Unsubscribe("w1", "t", one.number + 10, 1, name="billing", group=1)
    assert pair["s2"].ask(end).outcome is Outcome.BUSY
    assert one.work(9).bodies == [b"1", b"2"]
    pair["s2"].sole_owner = True
    assert pair["s2"].ask(Unsubscribe("w1", "t", one.number + 11, 1, name="none", group=1)).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("mode", ["shared", "keyed"])
def test_a_topic_that_moves_away_and_back_keeps_claims_and_forgets_offers(pair: Pair, mode: str) -> None:
    """The rules are docs/explanation/groups.md, GR4, GR13 and GR32."""
    part = 0 if mode == "keyed" else None
    one = filled(pair["s1"], 6, mode, parts=int(mode == "keyed"))
    log = log_of(pair["s1"])
    late = one.message()
    one.work(2)
    assert one.work(2, claim=False, keep=[Range(log, 1, 3, part)]).offered == (Range(log, 3, 5, part),)
    for giver, receiver in (("s1", "s2"), ("s2", "s1")):
        waits = one.send(Say(keep=(Range(log, 1, 3, part),)), records_max=9, wait_ms=30_000)
        pair.merge(giver, receiver)
        pair.turns()
        assert pair[giver].answered(waits).outcome in {Outcome.MOVED, Outcome.SUCCESS}
        assert TOPIC not in pair[giver].core.state.topics
        one = moved(one, pair[receiver])
        pair[receiver].restart()  # All that has travelled is in the store.
        assert pair[receiver].ask(late).reason == "a_later_message_came"
        two = another(one, "w2")
        assert two.work(9).bodies == ([] if mode == "keyed" else [b"3", b"4", b"5", b"6"])
        assert one.work(0, keep=[Range(log, 1, 3, part)]).held == (Range(log, 1, 3, part),)
        two.work(0)
        assert facts(pair[receiver])["claimed"] == 2
    one.work(0, done=[Range(log, 1, 3, part)])
    assert two.work(9).bodies == [b"3", b"4", b"5", b"6"]


def test_a_topic_that_is_deleted_ends_its_groups_and_their_waiting_messages(stage: Stage) -> None:
    one = filled(stage, 2)
    one.work(1)
    two = another(one, "w2")
    two.work(1)
    keep = Say(keep=two.work(0, keep=[Range(log_of(stage), 2, 3)]).held)
    waits = two.send(keep, records_max=5, wait_ms=30_000)
    stage.loop()
    stage.say(Deleted("p", "", (Deletion(TOPIC, 7),)), origin=b"", callback=0)
    stage.loop()
    stage.sleep(2)
    assert stage.answered(waits).outcome is Outcome.UNAVAILABLE
    assert two.status(keep).outcome in {Outcome.UNKNOWN, Outcome.MOVED}
    assert stage.core.group_memory.find(TOPIC, GROUP) is None
    stage.restart()
    assert TOPIC not in stage.core.state.topics
    assert not list(stage.store.db.execute("select * from sqlite_schema where name = 'member'")) or not list(
        stage.store.db.execute("select * from member")
    )
