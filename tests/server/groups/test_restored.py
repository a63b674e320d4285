"""Groups on a restored copy, old claims, lost records, ends, and services with a group (GR20, GR21, GR29, GR30)."""

from __future__ import annotations

import pytest

from pubsub.protocol import Outcome, Subscribe, Unsubscribe
from pubsub.protocol.group_bodies import Range
from pubsub.server.groups import memory
from pubsub.server.offline.restore import accept_copy
from tests.server.groups.workers import GROUP, TOPIC, Worker, act, another, facts, fill, filled, log_of
from tests.server.stage import Stage
from tests.server.test_settings import configure


@pytest.mark.parametrize("skip", [0, 1])
def test_a_group_of_a_restored_store_waits_for_an_operator(stage: Stage, skip: int) -> None:
    """The rule is docs/explanation/groups.md, GR21."""
    one = filled(stage, 4)
    log = log_of(stage)
    one.work(2)
    stage.close()
    accept_copy(stage.settings.directory)
    stage.open()
    stage.core.state.accepted = True
    answer = one.work(9, keep=[Range(log, 1, 3)])
    assert answer.status.reason == "suspended"
    assert answer.held == (Range(log, 1, 3),)
    assert facts(stage)["suspended"]
    act(stage, "resume", one.subscription, skip=skip)
    given = one.work(9, keep=[Range(log, 1, 3)])
    assert given.bodies == ([] if skip else [b"3", b"4"])
    assert given.line(1).doubtful is not bool(skip)


@pytest.mark.parametrize("mode", ["shared", "keyed"])
def test_the_unknown_end_of_a_copy_goes_with_its_records_after_the_group_was_resumed(stage: Stage, mode: str) -> None:
    one = filled(stage, 4, mode, parts=2 * (mode == "keyed"))
    configure(stage, keep="1m")
    stage.close()
    accept_copy(stage.settings.directory)
    stage.open()
    stage.core.state.accepted = True
    topic = stage.core.state.topics[TOPIC]
    stage.sleep(120)
    one.work(1)
    assert (len(topic.logs), topic.not_let_go) == (2, f"subscriber {'%billing:0' if mode == 'keyed' else '%billing'}")
    act(stage, "resume", one.subscription)
    given = one.work(9)
    assert given.bodies == [b"1", b"2", b"3", b"4"]
    one.work(9, done=given.held)
    stage.sleep(120)
    assert (len(topic.logs), topic.not_let_go) == (1, "")


def test_what_is_in_doubt_for_long_is_copied_out_of_the_log(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is docs/explanation/groups.md, GR20."""
    monkeypatch.setattr(memory, "HOLD_SECONDS", 10.0)
    one = filled(stage, 6, "keyed", parts=2, keys=6)
    log = log_of(stage)
    held = one.work(100)
    two = another(one, "w2")
    stage.sleep(12)
    topic = stage.core.state.topics[TOPIC]
    assert topic.floors()[log] == 7
    stage.sleep(120)
    fill(stage, 7, 7, keys=6)
    stage.sleep(10)
    assert topic.logs[log].low > 1
    stage.restart()
    member = facts(stage, "members")["members"][0]
    assert member["claimed"] == 6
    released = act(stage, "release", one.subscription, member="w1", store=one.store, number=member["number"])
    assert released.records == 6
    given = two.work(100)
    assert sorted(map(int, given.bodies)) == [1, 2, 3, 4, 5, 6, 7]
    assert {given.keys[place] for place in given.records} == {b"k0", b"k1", b"k2", b"k3", b"k4", b"k5"}
    two.work(0, done=given.held)
    assert not stage.core.state.topics[TOPIC].groups[GROUP].copies
    assert held.records


def test_the_end_of_a_group_is_refused_while_something_is_in_doubt(stage: Stage) -> None:
    """The rules are docs/explanation/groups.md, GR29 and GR30."""
    one = filled(stage, 2)
    one.work(1)
    stage.sleep(4)
    end = Unsubscribe("w1", TOPIC, one.number + 10, 1, name=GROUP, group=1)
    refused = stage.ask(end)
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, "in_doubt")
    end.force = 1
    assert stage.ask(end).outcome is Outcome.SUCCESS
    ended = one.status(records_max=1)
    assert (ended.outcome, ended.reason, ended.number) == (Outcome.SUPERSEDED, "the_group_was_ended", end.number)
    for number in (end.number - 1, end.number):
        late = stage.ask(Subscribe("w1", TOPIC, number, 1, name=GROUP, group="any"))
        assert late.outcome is Outcome.SUPERSEDED
    stage.restart()
    again = Worker(stage, "w1", opening=end.number + 5)
    assert again.subscribe("keyed", parts=3).outcome is Outcome.SUCCESS
    assert one.status(number=again.number + 1).reason == "the_group_was_made_again"
    assert sorted(again.work(9).bodies) == [b"1", b"2"]


def test_a_group_is_joined_with_its_own_values_or_with_none(stage: Stage) -> None:
    one = filled(stage, 1, "keyed", parts=8, attempts=7)
    other = Worker(stage, "w2")
    assert other.subscribe().number == one.subscription
    assert other.subscribe("keyed", parts=8).outcome is Outcome.SUCCESS
    assert other.subscribe("shared").reason == "mode_differs"
    assert other.subscribe("any", parts=9).reason == "parts_differs"
    assert other.subscribe("any", attempts=6).reason == "attempts_differs"
    assert other.subscribe("any", on_lost="redeliver").reason == "onlost_differs"
    assert other.subscribe("any", lost_ms=5000).reason == "lost_differs"


def test_lost_records_are_told_to_one_member(stage: Stage) -> None:
    one = filled(stage, 3)
    log = log_of(stage)
    topic = stage.core.state.topics[TOPIC]
    stage.store.db.execute("update batch set body = null where key = ?", (topic.open.number << 40 | 2,))
    stage.store.reader.begin()
    given = one.work(9)
    assert given.lost == (Range(log, 2, 3),)
    assert given.bodies == [b"1", b"3"]
    assert one.work(0, done=[Range(log, 1, 4)]).lines == ()
    assert another(one, "w2").work(9).lines == ()


def test_a_service_has_one_worker_or_one_group(stage: Stage) -> None:
    calls = "$calls.pay"
    made = stage.ask(Subscribe("w1", calls, 7, 7, name="pay", group="shared", start="latest"))
    assert made.outcome is Outcome.SUCCESS
    alone = stage.ask(Subscribe("w2", calls, 8, 8))
    assert (alone.outcome, alone.reason) == (Outcome.FULL, "another_client_serves_this")
    assert stage.put(calls, 1).outcome is Outcome.SUCCESS
    other = stage.ask(Subscribe("w2", calls, 9, 9, name="more", group="shared", start="latest"))
    assert other.reason == "another_client_serves_this"


def test_a_topic_without_groups_costs_no_look(stage: Stage) -> None:
    fill(stage, 1, 2)
    assert stage.core.group_memory.deadline() == float("inf")
    assert not stage.core.group_memory.has_ready()


def test_waiting_messages_end_with_their_topic(stage: Stage) -> None:
    one = filled(stage, 0)
    one.work()
    waits = one.send(records_max=1, wait_ms=50_000)
    stage.loop()
    stage.core.state.topics.pop(TOPIC)
    stage.sleep(2)
    assert stage.answered(waits).outcome is Outcome.UNKNOWN
