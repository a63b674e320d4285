"""Calls under way, by number and by when they are due."""

from __future__ import annotations

from pubsub.services.core.freelance.calls import Calls
from pubsub.services.core.interface import Patience

PATIENCE = Patience(2.0, 3)


def test_each_call_has_its_own_number_and_two_times() -> None:
    calls = Calls()
    first, second = calls.add(10, (b"a",), PATIENCE, 100.0), calls.add(11, (b"b",), PATIENCE, 101.0)
    assert (first.number, second.number, calls.last) == (1, 2, 2)
    assert (first.due, first.ends) == (102.0, 106.0)
    assert calls.under_way() == [first, second]
    assert calls.timer() == 102.0


def test_due_calls_are_returned_once_and_in_order() -> None:
    calls = Calls()
    first, second = (calls.add(token, (), PATIENCE, float(token)) for token in (1, 2))
    assert calls.due(2.9) == []
    assert calls.due(4.0) == [first, second]
    assert calls.due(4.0) == []
    calls.try_until(first, 99.0)
    assert first.due == first.ends == 7.0
    assert calls.timer() == 7.0


def test_a_renewed_try_is_due_once_at_its_new_time() -> None:
    calls = Calls()
    call = calls.add(1, (), PATIENCE, 0.0)
    calls.try_until(call, 3.0)
    assert calls.due(2.5) == []
    assert calls.due(3.0) == [call]
    assert calls.timer() is None


def test_a_try_that_is_begun_anew_for_the_same_time_is_due_once() -> None:
    calls = Calls()
    call = calls.add(1, (), PATIENCE, 0.0)
    calls.try_until(call, 2.0)
    assert calls.due(2.0) == [call]


def test_an_ended_call_is_never_due() -> None:
    calls = Calls()
    call = calls.add(1, (), PATIENCE, 0.0)
    calls.add(2, (), PATIENCE, 0.0)
    assert calls.end(call.number) is call
    assert calls.end(call.number) is None
    calls.cancel(2)
    calls.cancel(2)
    calls.cancel(3)
    assert calls.timer() is None
    assert calls.under_way() == []
