"""Each limit of groups: what reaches it is refused with its name, and nothing is lost (docs/limits.md)."""

from __future__ import annotations

import pytest

from pubsub.base.limits import CLAIMED_RECORDS_MAX, PARTS_MAX, WORK_LINES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Outcome, Unsubscribe
from pubsub.protocol.group_bodies import Dead, Range, Say, Tried, join_say, split_say
from pubsub.server.groups import context, handing, letters, work
from pubsub.server.requests import group_subscriptions, groups
from tests.server.groups.workers import TOPIC, Given, Worker, act, another, facts, fill, filled, log_of
from tests.server.stage import Stage, put


def ended(stage: Stage, worker: Worker) -> None:
    worker.number += 1
    request = Unsubscribe(worker.client, TOPIC, worker.number, 1, name=worker.group, group=1)
    assert stage.ask(request).outcome is Outcome.SUCCESS


def test_groups_of_a_topic_and_their_names(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_subscriptions, "GROUPS_MAX", 2)
    monkeypatch.setattr(group_subscriptions, "GROUP_NAMES_MAX", 3)
    fill(stage, 1, 1)
    one, two, three, four = (Worker(stage, "w1", group=f"g{number}") for number in range(4))
    assert [worker.subscribe().outcome for worker in (one, two)] == [Outcome.SUCCESS] * 2
    full = three.subscribe()
    assert (full.outcome, full.reason) == (Outcome.FULL, "GROUPS_MAX")
    assert one.subscribe().outcome is Outcome.SUCCESS  # To join is no new group.
    ended(stage, two)
    assert three.subscribe().outcome is Outcome.SUCCESS
    ended(stage, three)
    full = four.subscribe()
    assert (full.outcome, full.reason) == (Outcome.FULL, "GROUP_NAMES_MAX")
    two.number += 10
    assert two.subscribe().outcome is Outcome.SUCCESS
    assert one.work(1).bodies == [b"1"]


def test_members_of_a_group(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is docs/explanation/groups.md, GR33."""
    monkeypatch.setattr(groups, "MEMBERS_MAX", 2)
    one = filled(stage, 3)
    two, three = another(one, "w2"), another(one, "w3")
    one.work(1)
    two.work(1)
    full = three.status(records_max=1, claim=1)
    assert (full.outcome, full.reason) == (Outcome.FULL, "members_max")
    assert [member["claimed"] for member in facts(stage, "members")["members"]] == [1, 1]
    two.work(0, leave=1)  # It holds nothing from now on, so it is forgotten.
    assert three.work(1).bodies == [b"2"]
    stage.restart()
    assert [member["client"] for member in facts(stage, "members")["members"]] == ["w1", "w3"]


@pytest.mark.parametrize("mode", ["shared", "keyed"])
@pytest.mark.parametrize("claim", [True, False])
def test_records_in_one_members_hand(stage: Stage, monkeypatch: pytest.MonkeyPatch, mode: str, claim: bool) -> None:
    monkeypatch.setattr(handing, "CLAIMED_RECORDS_MAX", 4)
    monkeypatch.setattr(context, "CLAIMED_RECORDS_MAX", 4)
    one = filled(stage, 9, mode, **({"parts": 1} if mode == "keyed" else {}))
    part = 0 if mode == "keyed" else None
    log = log_of(stage)
    given = one.work(9, claim=claim)
    assert given.bodies == [b"1", b"2", b"3", b"4"]
    lines = {"keep" if claim else "offered": [Range(log, 1, 5, part)]}
    more = one.work(9, claim=claim, **lines)
    assert (more.bodies, more.status.reason) == ([], "claimed_max")
    assert Given(one.status(Say(**{name: tuple(some) for name, some in lines.items()}))).lines == given.lines
    if claim:
        assert one.work(9, done=[Range(log, 1, 3, part)], keep=[Range(log, 3, 5, part)]).bodies == [b"5", b"6"]


@pytest.mark.parametrize("mode", ["shared", "keyed"])
def test_a_claim_of_more_records_than_one_member_may_hold(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(context, "CLAIMED_RECORDS_MAX", 4)
    one = filled(stage, 9, mode, **({"parts": 1} if mode == "keyed" else {}))
    part = 0 if mode == "keyed" else None
    log = log_of(stage)
    Given(one.status(Say(claim=(Range(log, 1, 9, part),))))
    assert facts(stage)["claimed"] == (4 if mode == "keyed" else 0)
    kept = tuple(Range(log, at, at + 1, part) for at in range(1, 5))
    one.status(Say(keep=kept) if mode == "keyed" else Say(claim=kept))
    one.status(Say(keep=kept, claim=(Range(log, 5, 6, part),)))
    assert facts(stage)["claimed"] == 4
    assert facts(stage)["counts"]["claims_refused"] >= 1
    assert another(one, "w2").work(9).bodies == ([] if mode == "keyed" else [b"5", b"6", b"7", b"8", b"9"])


def test_ranges_in_one_members_hand(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "CLAIMED_RANGES_MAX", 2)
    monkeypatch.setattr(context, "CLAIMED_RANGES_MAX", 2)
    one = filled(stage, 9)
    log = log_of(stage)
    scattered = (Range(log, 1, 2), Range(log, 3, 4), Range(log, 5, 6))
    assert one.work(0, claim=False, offered=()).lines == ()
    given = Given(one.status(Say(claim=scattered), records_max=9, claim=1))
    assert given.held == scattered[:2]
    assert given.status.reason == "claimed_max"
    assert another(one, "w2").work(9).bodies == [b"2", b"4"]
    assert another(one, "w3").work(9).bodies == [b"5", b"6", b"7", b"8", b"9"]


def test_bytes_in_one_answer_and_in_one_members_hand(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    one = filled(stage, 0)
    log = log_of(stage)
    for counter in range(1, 6):
        stage.ask(put(TOPIC, counter, [bytes(1000)]))
    assert len(one.work(9, bytes_max=2500).records) == 2
    assert len(one.work(9, bytes_max=10, keep=[Range(log, 1, 3)]).records) == 1  # At least one record.
    monkeypatch.setattr(handing, "CLAIMED_BYTES_MAX", 3000)
    full = one.work(9, keep=[Range(log, 1, 4)])
    assert (full.records, full.status.reason) == ({}, "claimed_max")
    assert len(one.work(9, done=[Range(log, 1, 4)]).records) == 2


def test_retries_beyond_their_limit_are_dead_letters(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "RETRIES_MAX", 2)
    one = filled(stage, 6)
    log = log_of(stage)
    one.work(6)
    one.work(0, tried=[Tried(log, offset, 1) for offset in (1, 3, 5)], keep=[Range(log, 6, 7)])
    dead = facts(stage, "dead")["dead"]
    assert [(letter["id"], letter["reason"]) for letter in dead] == [(f"{log}.5", "RETRIES_MAX")]
    stage.sleep(2)
    given = one.work(9, keep=[Range(log, 6, 7)])
    assert sorted(given.bodies) == [b"1", b"2", b"3", b"4"]
    act(stage, "redrive", one.subscription)
    assert one.work(9, keep=given.held).bodies == [b"5"]


@pytest.mark.parametrize(("name", "most"), [("DEAD_LETTERS_MAX", 2), ("DEAD_LETTERS_BYTES_MAX", 20)])
def test_a_group_full_of_dead_letters_hands_out_nothing_and_loses_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(letters, name, most)
    one = filled(stage, 5)
    log = log_of(stage)
    one.work(4)
    one.work(0, dead=[Dead(log, offset, 1, "bad") for offset in (1, 2, 3)], keep=[Range(log, 4, 5)])
    assert facts(stage)["full"]
    assert facts(stage)["dead_letters"] == 2
    full = one.work(9, keep=[Range(log, 4, 5)])
    assert (full.bodies, full.held, full.status.reason) == ([], (Range(log, 4, 5),), "dead_letters_full")
    stage.restart()
    assert one.work(0, done=[Range(log, 4, 5)]).lines == ()
    assert act(stage, "drop", one.subscription, places=f"{log}.1".encode()).records == 1
    assert sorted(one.work(9).bodies) == [b"3", b"5"]
    assert act(stage, "redrive", one.subscription).records == 1
    assert one.work(9, done=[Range(log, 3, 4), Range(log, 5, 6)]).bodies == [b"2"]


def test_a_record_that_kills_ten_members_is_a_dead_letter(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is docs/explanation/groups.md, GR17."""
    monkeypatch.setattr(letters, "LOSSES_MAX", 2)
    one = filled(stage, 2)
    for name in ("w2", "w3"):
        assert another(one, name).work(1, claim=False).bodies == [b"1"]
        stage.sleep(4)
    assert another(one, "w4").work(9).bodies == [b"2"]
    assert facts(stage, "dead")["dead"][0]["reason"] == "its_members_went_silent"


def test_lines_of_a_work(stage: Stage) -> None:
    ranges = tuple(Range("0123456789abcdef", 2 * at + 1, 2 * at + 2) for at in range(WORK_LINES_MAX))
    assert split_say(join_say(Say(done=ranges))) == Say(done=ranges)
    with pytest.raises(DecodeError, match="1025 lines, above 1024"):
        split_say(join_say(Say(done=ranges, keep=ranges[:1])))
    one = filled(stage, 3)
    log = log_of(stage)
    one.work(3)
    done = (Range(log, 1, 2), *(Range("0123456789abcdef", at, at + 1) for at in range(1, WORK_LINES_MAX)))
    assert one.work(0, done=done).lines == ()
    assert one.work(9).bodies == [b"2", b"3"]


def test_parts_of_a_keyed_group(stage: Stage) -> None:
    one = filled(stage, 3, "keyed", parts=PARTS_MAX)
    assert sorted(one.work(CLAIMED_RECORDS_MAX).bodies) == [b"1", b"2", b"3"]


def test_the_member_that_is_forgotten_has_left_or_was_heard_least_lately(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late message of it could still come. The rule is docs/explanation/groups.md, GR33."""
    monkeypatch.setattr(groups, "MEMBERS_MAX", 3)
    one = filled(stage, 3)
    one.work(1)
    members = [another(one, f"w{number}") for number in range(2, 6)]

    def names() -> list[str]:
        return [member["client"] for member in facts(stage, "members")["members"]]

    for member in members[:3]:
        stage.sleep(1)
        member.work()
    assert names() == ["w1", "w3", "w4"]
    stage.sleep(1)
    members[1].work()
    members[2].work(leave=1)
    members[3].work()
    assert names() == ["w1", "w3", "w5"]
