"""The schedule of due work: as much at once as allowed, and a crowded destination delays no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pubsub.web.schedule import STALE_MAX, Schedule


def test_due_work_is_begun_in_order_and_once() -> None:
    schedule: Schedule[str] = Schedule(10, 10)
    for name, due in (("b", 2.0), ("a", 1.0), ("c", 9.0)):
        schedule.set(name, due)
    assert schedule.deadline() == 1.0
    assert schedule.begin(5.0) == ["a", "b"]
    assert schedule.begin(5.0) == []
    assert schedule.deadline() == 9.0


def test_a_time_that_is_set_anew_counts_and_the_old_one_does_not() -> None:
    schedule: Schedule[str] = Schedule(10, 10)
    schedule.set("a", 1.0)
    schedule.set("a", 5.0)
    assert schedule.begin(4.0) == []
    assert schedule.deadline() == 5.0
    schedule.drop("a")
    assert schedule.deadline() is None
    assert len(schedule) == 0


def test_a_crowded_destination_waits_and_the_others_do_not() -> None:
    schedule: Schedule[str] = Schedule(10, 1)
    schedule.set("x1", 1.0, "x")
    schedule.set("x2", 1.0, "x")
    schedule.set("y1", 1.0, "y")
    assert schedule.begin(1.0) == ["x1", "y1"]
    assert schedule.deadline() is None
    schedule.end("x1")
    assert schedule.begin(1.0) == ["x2"]


def test_work_that_is_set_while_it_runs_is_done_again_afterwards() -> None:
    schedule: Schedule[str] = Schedule(10, 10)
    schedule.set("a", 1.0)
    assert schedule.begin(1.0) == ["a"]
    schedule.set("a", 2.0)
    assert schedule.begin(3.0) == []
    schedule.end("a")
    assert schedule.begin(3.0) == ["a"]


def test_outdated_times_do_not_accumulate() -> None:
    schedule: Schedule[int] = Schedule(10, 10)
    for number in range(10_000):
        schedule.set(number, 1e9)
        schedule.drop(number)
    assert len(schedule._heap) <= STALE_MAX + 1


ACTIONS = st.lists(st.tuples(st.sampled_from("sdbe"), st.integers(0, 5), st.integers(0, 9)), max_size=80)


@given(ACTIONS, st.integers(1, 4), st.integers(1, 3))
def test_no_scheduled_time_is_lost(actions: list[tuple[str, int, int]], at_once: int, each: int) -> None:
    schedule: Schedule[int] = Schedule(at_once, each)
    due: dict[int, int] = {}
    busy: list[int] = []

    def begin(now: float) -> None:
        for name in schedule.begin(now):
            assert name not in busy
            assert due.pop(name) <= now
            busy.append(name)
        assert len(busy) <= at_once
        for place in range(3):
            assert len([name for name in busy if name % 3 == place]) <= each

    for action, name, time in actions:
        match action:
            case "s":
                schedule.set(name, float(time), str(name % 3))
                due[name] = time
            case "d":
                schedule.drop(name)
                due.pop(name, None)
            case "b":
                begin(float(time))
            case "e" if busy:
                schedule.end(busy.pop(0))
    while busy or due:
        before = len(busy) + len(due)
        if busy:
            schedule.end(busy.pop(0))
        begin(100.0)
        assert len(busy) + len(due) < before or busy


def test_a_repeatedly_set_time_takes_no_more_room() -> None:
    schedule: Schedule[str] = Schedule(1, 1)
    for number in range(10_000):
        schedule.set("a", float(number))
    assert len(schedule._heap) <= 2 + STALE_MAX
    assert schedule.begin(9_998.0) == []
    assert schedule.begin(9_999.0) == ["a"]
