"""A member with the same database settles a silent one (docs/explanation/group-databases.md, GD1, GD4, GD5 and GD6)."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.protocol import Outcome, Status
from pubsub.protocol.group_bodies import NOTHING, Range, Say, Tried
from pubsub.server.groups.settling import LOOK_SECONDS
from tests.server.groups.workers import Given, Worker, act, another, facts, filled, log_of
from tests.server.stage import Stage

SHARED, OTHER = "0123456789abcdef", "f" * 16


def name(worker: Worker) -> str:
    return f"{worker.client}/{worker.store}"


def pair(stage: Stage, mode: str = "shared", database: str = SHARED, **values: Any) -> tuple[Worker, Worker]:
    """A member that has claimed 1 to 4 and is silent, and one with this database that is heard."""
    one = filled(stage, 6, mode, **values)
    assert len(one.work(4, database=SHARED).records) == 4
    two = another(one, "w2")
    stage.sleep(4)
    two.work(database=database)
    return one, two


def settle(looker: Worker, silent: Worker, number: int, say: Say = NOTHING, **fields: Any) -> Status:
    fields.setdefault("database", SHARED)
    return looker.status(say, number=number, settles=name(silent), **fields)


def done(stage: Stage, low: int, high: int, part: int | None = None) -> tuple[Range, ...]:
    return (Range(log_of(stage), low, high, part),)


def test_what_is_not_done_goes_back_unmarked_and_with_its_attempts(stage: Stage) -> None:
    one, two = pair(stage)
    assert two.work(database=SHARED).status.silent == "", "one look at a time"
    say = Say(done(stage, 1, 3), tried=(Tried(log_of(stage), 3, 1),))
    answer = settle(two, one, one.number, say)
    assert (answer.outcome, answer.records) == (Outcome.SUCCESS, 2)
    assert facts(stage)["claimed"] == 0
    stage.sleep(1)
    given = two.work(10, database=SHARED)
    assert sorted(map(int, given.bodies)) == [3, 4, 5, 6]
    assert [(given.line(offset).attempts, given.line(offset).doubtful) for offset in (3, 4)] == [(1, False), (0, False)]


def test_an_answer_names_a_silent_member_with_the_same_database(stage: Stage) -> None:
    one = filled(stage, 2)
    one.work(2, database=SHARED)
    two, three = another(one, "w2"), another(one, "w3")
    assert two.work(database=SHARED).status.silent == "", "it is heard"
    stage.sleep(4)
    assert three.work(database=OTHER).status.silent == ""
    assert three.work().status.silent == ""
    assert two.work(database=SHARED).status.silent == f"{name(one)}/{one.number}"
    assert two.work(database=SHARED).status.silent == ""
    three.work(database=SHARED)
    stage.sleep(LOOK_SECONDS)
    assert three.work(database=SHARED).status.silent == f"{name(one)}/{one.number}", "the first look was lost"


def test_a_member_that_waits_is_told_of_one_that_becomes_silent(stage: Stage) -> None:
    one = filled(stage, 2)
    one.work(2, database=SHARED)
    two = another(one, "w2")
    waits = two.send(records_max=1, wait_ms=60_000, database=SHARED)
    assert stage.answer(waits) is None
    stage.sleep(4)
    assert Given(stage.answered(waits)).status.silent == f"{name(one)}/{one.number}"


def test_a_member_without_claims_or_without_a_database_is_not_looked_up(stage: Stage) -> None:
    one = filled(stage, 2)
    one.work(database=SHARED)
    two, three = another(one, "w2"), another(one, "w3")
    two.work(1)
    stage.sleep(4)
    assert three.work(database=SHARED).status.silent == ""
    assert three.work().status.silent == ""


def test_a_late_look_gives_nothing_of_a_member_that_went_on_but_counts_what_is_done(stage: Stage) -> None:
    one, two = pair(stage)
    number = one.number
    again = Worker(stage, one.client, one.store, opening=number + 1000)
    again.subscription = one.subscription
    assert again.work(4, database=SHARED).held
    answer = settle(two, one, number, Say(done(stage, 1, 2)))
    assert (answer.outcome, answer.reason) == (Outcome.SUPERSEDED, "the_member_went_on")
    assert facts(stage)["claimed"] == 3


def test_a_member_that_is_heard_again_keeps_its_claims(stage: Stage) -> None:
    one, two = pair(stage)
    number = one.number
    one.status(number=number, database=SHARED)
    answer = settle(two, one, number)
    assert (answer.outcome, answer.reason) == (Outcome.SUPERSEDED, "the_member_is_heard")
    assert facts(stage)["claimed"] == 4


@pytest.mark.parametrize("fields", [{"database": OTHER}, {"database": ""}])
def test_a_member_of_another_database_settles_nothing(stage: Stage, fields: dict[str, str]) -> None:
    one, two = pair(stage, database=OTHER)
    for claimed in (fields, {"database": SHARED}):
        answer = settle(two, one, one.number, Say(done(stage, 1, 5)), **claimed)
        assert answer.outcome is Outcome.SUPERSEDED
        assert facts(stage)["claimed"] == 4
    assert settle(another(one, "w9"), one, one.number).outcome is Outcome.SUPERSEDED, "not a member"


def test_a_settled_part_goes_on_at_another_member_in_order(stage: Stage) -> None:
    one, two = pair(stage, "keyed", parts=1, keys=1)
    settle(two, one, one.number, Say(done(stage, 1, 3, 0)))
    assert list(map(int, two.work(10, database=SHARED).bodies)) == [3, 4, 5, 6]


@pytest.mark.parametrize("after", ["restart", "nothing"])
def test_the_database_of_a_member_is_remembered_with_its_claims(stage: Stage, after: str) -> None:
    one = filled(stage, 2)
    one.work(2, database=SHARED)
    if after == "restart":
        stage.restart()
    two = another(one, "w2")
    two.work(database=SHARED)
    stage.sleep(4)
    assert two.work(database=SHARED).status.silent == f"{name(one)}/{one.number}"
    assert settle(two, one, one.number).outcome is Outcome.SUCCESS


def test_a_mark_of_an_earlier_release_stays(stage: Stage) -> None:
    one = filled(stage, 1)
    one.work(1, database=SHARED)
    stage.sleep(4)
    act(stage, "release", one.subscription, member=one.client, store=one.store, number=one.number)
    three, two = another(one, "w3"), another(one, "w2")
    assert three.work(1, database=SHARED).line(1).doubtful
    stage.sleep(4)
    two.work(database=SHARED)
    settle(two, three, three.number)
    assert two.work(1, database=SHARED).line(1).doubtful
