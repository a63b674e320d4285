"""Each state of a member with each message and operator's action: the answer, and the claims that are left.

After each pair, what the member has claimed and what another member is given are together all that is not done: nothing
is lost, and nothing is given twice. The rules are docs/explanation/groups.md, GR4, GR6, GR8, GR10, GR11, GR19, GR28,
GR29 and GR30.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pubsub.protocol import Unsubscribe
from pubsub.protocol.group_bodies import Range, Say
from tests.server.groups.workers import GROUP, TOPIC, Given, Worker, act, another, facts, filled, log_of
from tests.server.stage import Stage

RECORDS = range(1, 7)
States = dict[str, Callable[[Stage, Worker], Worker]]


def held(stage: Stage, low: int, high: int) -> tuple[Range, ...]:
    return (Range(log_of(stage), low, high),)


# The states


def new(stage: Stage, one: Worker) -> Worker:
    return one


def idle(stage: Stage, one: Worker) -> Worker:
    one.work()
    return one


def holding(stage: Stage, one: Worker) -> Worker:
    """It has claimed 1 and 2, and is offered 3 and 4."""
    one.work(2)
    one.work(2, claim=False, keep=held(stage, 1, 3))
    return one


def silent(stage: Stage, one: Worker) -> Worker:
    holding(stage, one)
    stage.sleep(4)
    return one


def released(stage: Stage, one: Worker) -> Worker:
    silent(stage, one)
    assert release(stage, one) == "success"
    return one


def left(stage: Stage, one: Worker) -> Worker:
    holding(stage, one)
    one.work(leave=1)
    return one


def superseded(stage: Stage, one: Worker) -> Worker:
    """A later process of the same directory has claimed 1 and 2."""
    one.work()
    again = Worker(stage, one.client, opening=one.number + 1000)
    again.subscription = one.subscription
    again.work(2)
    return one


def restarted(stage: Stage, one: Worker) -> Worker:
    """It holds 1 and 2, and the server has forgotten the rest."""
    holding(stage, one)
    stage.restart()
    return one


STATES: States = {one.__name__: one for one in (new, idle, holding, silent, released, left, superseded, restarted)}


# The events


def answered(stage: Stage, one: Worker, say: Say, **fields: int) -> str:
    answer = one.status(say, **fields)
    return f"{answer.outcome.value} {answer.reason}".strip()


def keep(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(keep=held(stage, 1, 3)))


def nothing(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say())


def done(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(done=held(stage, 1, 2), keep=held(stage, 2, 3)))


def claim(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(keep=held(stage, 1, 3), claim=held(stage, 3, 4)))


def late(stage: Stage, one: Worker) -> str:
    """A message from before, which tells 1 as done, keeps nothing and claims 5."""
    say = Say(done=held(stage, 1, 2), claim=held(stage, 5, 6))
    return answered(stage, one, say, number=one.opening + 1)


def doubled(stage: Stage, one: Worker) -> str:
    message = one.message(Say(keep=held(stage, 1, 3)))
    stage.ask(message)
    answer = stage.ask(message)
    return f"{answer.outcome.value} {answer.reason}".strip()


def leave(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(keep=held(stage, 1, 2)), leave=1)


def earlier_group(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(done=held(stage, 1, 2)), subscription=one.subscription - 1)


def later_group(stage: Stage, one: Worker) -> str:
    return answered(stage, one, Say(done=held(stage, 1, 2)), subscription=one.subscription + 1)


def release(stage: Stage, one: Worker) -> str:
    member = stage.core.state.topics[TOPIC].groups[GROUP].members.get((one.client, one.store))
    number = member.number if member is not None else 1
    answer = act(stage, "release", one.subscription, member=one.client, store=one.store, number=number)
    return f"{answer.outcome.value} {answer.reason}".strip()


def change(stage: Stage, one: Worker) -> str:
    answer = act(stage, "change", one.subscription, mode="keyed", parts=2)
    return f"{answer.outcome.value} {answer.reason}".strip()


def resume(stage: Stage, one: Worker) -> str:
    return act(stage, "resume", one.subscription).outcome.value


def end(stage: Stage, one: Worker) -> str:
    answer = stage.ask(Unsubscribe("w1", TOPIC, one.number + 5_000, 1, name=GROUP, group=1))
    return f"{answer.outcome.value} {answer.reason}".strip()


LATE, OPENED = "superseded a_later_message_came", "superseded opened_again"
AGAIN, UNKNOWN = "superseded the_group_was_made_again", "unknown group"
OK = "success"

# By event: the answer in each state, and the records that the member has claimed then.
# The states are new, idle, holding, silent, released, left, superseded, restarted.
TABLE: dict[Callable[[Stage, Worker], str], tuple[tuple[str, str], ...]] = {
    keep: ((OK, ""), (OK, ""), (OK, "12"), (OK, "12"), (OK, ""), (OK, ""), (OPENED, "12"), (OK, "12")),
    nothing: ((OK, ""), (OK, ""), (OK, ""), (OK, ""), (OK, ""), (OK, ""), (OPENED, "12"), (OK, "")),
    done: ((OK, ""), (OK, ""), (OK, "2"), (OK, "2"), (OK, ""), (OK, ""), (OPENED, "2"), (OK, "2")),
    claim: ((OK, "3"), (OK, "3"), (OK, "123"), (OK, "123"), (OK, "3"), (OK, "3"), (OPENED, "12"), (OK, "123")),
    late: ((OK, "5"), (LATE, ""), (LATE, "2"), (LATE, "2"), (LATE, ""), (LATE, ""), (OPENED, "2"), (LATE, "2")),
    doubled: ((OK, ""), (OK, ""), (OK, "12"), (OK, "12"), (OK, ""), (OK, ""), (OPENED, "12"), (OK, "12")),
    leave: ((OK, ""), (OK, ""), (OK, "1"), (OK, "1"), (OK, ""), (OK, ""), (OPENED, "12"), (OK, "1")),
    earlier_group: tuple(zip([AGAIN] * 8, ("", "", "12", "12", "", "", "12", "12"), strict=True)),
    later_group: tuple(zip([UNKNOWN] * 8, ("", "", "12", "12", "", "", "12", "12"), strict=True)),
    release: (
        ("unknown member", ""),
        ("refused the_member_is_heard", ""),
        ("refused the_member_is_heard", "12"),
        (OK, ""),
        (OK, ""),
        ("refused the_member_is_heard", ""),
        ("refused the_member_is_heard", "12"),
        (OK, ""),
    ),
    change: (
        (OK, ""),
        (OK, ""),
        ("refused not_empty", "12"),
        ("refused not_empty", "12"),
        ("refused not_empty", ""),
        (OK, ""),
        ("refused not_empty", "12"),
        ("refused not_empty", "12"),
    ),
    resume: tuple(zip([OK] * 8, ("", "", "12", "12", "", "", "12", "12"), strict=True)),
    end: (
        (OK, "-"),
        (OK, "-"),
        (OK, "-"),
        ("refused in_doubt", "12"),
        (OK, "-"),
        (OK, "-"),
        (OK, "-"),
        ("refused in_doubt", "12"),
    ),
}
DONE = {done, late}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", TABLE, ids=lambda event: event.__name__)
def test_a_state_and_an_event(stage: Stage, state: str, event: Callable[[Stage, Worker], str]) -> None:
    one = STATES[state](stage, filled(stage, len(RECORDS)))
    answer, claimed = TABLE[event][list(STATES).index(state)]
    assert event(stage, one) == answer
    group = stage.core.state.topics[TOPIC].groups[GROUP]
    if claimed == "-":
        assert (group.row.on, group.members) == (False, {})
        return
    mine = [at for member in group.members.values() for *_, low, high in member.pieces() for at in range(low, high)]
    assert "".join(map(str, sorted(mine))) == claimed
    stage.sleep(4)  # Offers end.
    two = another(one, "w2")
    if group.keyed:
        two.subscribe()
    given: list[int] = []
    for _ in range(8):  # One with a loss is offered alone.
        answer_of = two.work(99, done=two_held(stage))
        given += map(int, answer_of.bodies)
        for line in answer_of.offered:
            given_of = Given(two.status(Say(done=tuple(two_held(stage)), claim=(line,))))
            assert line in given_of.held
        two.work(0, done=two_held(stage))
    finished = {1} if event in DONE else set()
    assert sorted([*mine, *set(given)]) == sorted({*RECORDS} - finished)
    assert len(given) == len(set(given))
    assert facts(stage)["waiting"] == 0


def two_held(stage: Stage) -> list[Range]:
    group = stage.core.state.topics[TOPIC].groups[GROUP]
    found = [member for (client, _), member in group.members.items() if client == "w2"]
    return [group.shown(*piece) for member in found for piece in member.pieces()]


def test_every_state_is_in_the_table() -> None:
    assert all(len(row) == len(STATES) for row in TABLE.values())
