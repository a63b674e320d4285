"""Keys by due time, compared with a dictionary that is searched."""

from __future__ import annotations

from random import Random

import pytest

from pubsub.base.due_times import SPARE, DueTimes


def test_keys_come_when_they_are_due_the_first_one_first() -> None:
    due = DueTimes({"a": 3.0, "b": 1.0})
    due.hasten("c", 2.0)
    assert (due.deadline(), len(due), "c" in due, "d" in due) == (1.0, 3, True, False)
    assert list(due.take(0.9)) == []
    assert list(due.take(2.0)) == ["b", "c"]
    assert list(due.take(9.0)) == ["a"]
    assert (due.deadline(), len(due)) == (float("inf"), 0)


def test_hasten_keeps_the_earlier_time_and_set_the_later_call() -> None:
    due = DueTimes[str]()
    due.hasten("a", 2.0)
    due.hasten("a", 5.0)
    assert list(due.take(2.0)) == ["a"]
    due.set("a", 2.0)
    due.set("a", 5.0)
    assert list(due.take(4.0)) == []
    assert list(due.take(5.0)) == ["a"]


def test_a_key_that_was_discarded_does_not_come() -> None:
    due = DueTimes({"a": 1.0})
    due.discard("a")
    due.discard("b")
    assert (list(due.take(9.0)), "a" in due) == ([], False)


def test_without_keys_a_replaced_time_wakes_no_one() -> None:
    due = DueTimes[str]()
    due.hasten("a", 5.0)
    due.hasten("a", 2.0)
    assert list(due.take(2.0)) == ["a"]
    assert (len(due), due.deadline()) == (0, float("inf"))
    due.set("a", 5.0)
    due.discard("a")
    assert due.deadline() == float("inf")


def test_a_limit_leaves_the_rest_for_the_next_time() -> None:
    due = DueTimes({number: float(number) for number in range(5)})
    assert list(due.take(9.0, 2)) == [0, 1]
    assert list(due.take(9.0, 9)) == [2, 3, 4]


def test_a_key_that_is_hastened_while_others_are_taken_comes_too() -> None:
    due = DueTimes({"a": 1.0})
    found = []
    for key in due.take(5.0):
        found.append(key)
        if len(found) < 3:
            due.hasten(key, 4.0)
    assert found == ["a", "a", "a"]


def test_the_heap_stays_small_however_often_a_time_is_replaced() -> None:
    due = DueTimes[str]()
    for at in range(10 * SPARE):
        due.set("a", float(at))
    assert due.entries <= SPARE + 2
    assert list(due.take(1e9)) == ["a"]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_calls_gives_what_a_search_gives(seed: int) -> None:
    random = Random(seed)
    due, known = DueTimes[int](), dict[int, float]()
    for _ in range(3_000):
        key, at = random.randrange(20), float(random.randrange(100))
        if (way := random.random()) < 0.4:
            due.hasten(key, at)
            known[key] = min(at, known.get(key, at))
        elif way < 0.7:
            due.set(key, at)
            known[key] = at
        elif way < 0.8:
            due.discard(key)
            known.pop(key, None)
        elif way < 0.83:
            expected = sorted((when, name) for name, when in known.items() if when <= at)
            assert due.deadline() <= min(known.values(), default=float("inf"))
            assert list(due.take(at)) == [name for _, name in expected]
            known = {name: when for name, when in known.items() if when > at}
        assert len(due) == len(known)
