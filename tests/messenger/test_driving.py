"""One thread at a time: callers before the I/O thread, and a grace between the two."""

import threading
import time

import pytest

from pubsub.base.clock import SystemClock
from pubsub.messenger.driving import Driving

FOREVER = time.monotonic() + 3600


def never() -> bool:
    return False


@pytest.fixture
def woken():
    return []


@pytest.fixture
def driving(woken) -> Driving:
    return Driving(SystemClock(), 0.01, lambda: woken.append(1))


def in_thread(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    return thread, out


def test_the_turn_is_taken_by_one(driving):
    assert driving.try_take()
    assert not driving.try_take()
    driving.give_up()
    assert driving.try_take()


def test_a_caller_takes_a_free_turn_at_once(driving, woken):
    assert driving.caller_takes(never, FOREVER)
    assert not woken


def test_a_caller_wakes_the_driver_and_gets_the_turn_when_it_is_given(driving, woken, until):
    assert driving.thread_takes(never)
    thread, out = in_thread(lambda: driving.caller_takes(never, FOREVER))
    until(lambda: woken and driving.callers)
    driving.thread_gives()
    thread.join(10)
    assert out == [True]


def test_a_caller_whose_work_another_driver_did_returns_without_the_turn(driving, until):
    done = threading.Event()
    assert driving.caller_takes(never, FOREVER)
    thread, out = in_thread(lambda: driving.caller_takes(done.is_set, FOREVER))
    until(lambda: driving.callers)
    done.set()
    driving.announce()
    thread.join(10)
    assert out == [False]
    assert driving.callers == 0


def test_a_caller_gives_up_at_its_deadline(driving):
    assert driving.try_take()
    assert not driving.caller_takes(never, time.monotonic() + 0.02)
    assert driving.callers == 0


def test_the_thread_takes_the_turn_only_after_the_grace(driving):
    assert driving.caller_takes(never, FOREVER)
    driving.caller_gives()
    given = time.monotonic()
    assert driving.thread_takes(never)
    assert time.monotonic() - given >= 0.009


def test_the_thread_gives_way_to_a_caller_who_drives_for_long_and_takes_over_after_it(driving, until):
    assert driving.caller_takes(never, FOREVER)
    thread, out = in_thread(lambda: driving.thread_takes(never))
    until(lambda: driving._parked)
    assert not out
    driving.caller_gives()
    thread.join(10)
    assert out == [True]


def test_the_thread_stops_when_told(driving, until):
    stopped = threading.Event()
    assert driving.try_take()
    thread, out = in_thread(lambda: driving.thread_takes(stopped.is_set))
    stopped.set()
    driving.stop()
    thread.join(10)
    assert out == [False]


def test_many_threads_never_have_the_turn_at_once(driving):
    inside, most, rounds = [], [], []
    stop = threading.Event()

    def turn() -> None:
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    def caller() -> None:
        for _ in range(300):
            assert driving.caller_takes(never, FOREVER)
            turn()
            driving.caller_gives()
            rounds.append(1)

    def io() -> None:
        while driving.thread_takes(stop.is_set):
            turn()
            driving.thread_gives()

    background = threading.Thread(target=io)
    background.start()
    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(30)
    stop.set()
    driving.stop()
    background.join(10)
    assert len(rounds) == 1200
    assert max(most) == 1


def test_of_those_who_sleep_only_those_are_woken_whose_work_is_done(driving, until):
    done, looks = threading.Event(), []
    assert driving.caller_takes(never, FOREVER)
    asleep, _ = in_thread(lambda: driving.caller_takes(lambda: looks.append(threading.get_ident()), FOREVER))
    until(lambda: looks)
    other, out = in_thread(lambda: driving.caller_takes(done.is_set, FOREVER))
    until(lambda: driving.callers == 2)
    done.set()
    looks.clear()
    assert driving.announce_done()
    other.join(10)
    assert out == [False]
    assert asleep.ident not in looks, "the driver looked for it"
    driving.caller_gives()
    asleep.join(10)
    assert not asleep.is_alive()


def test_who_is_woken_to_drive_and_leaves_wakes_the_next(driving, until):
    """The turn is free, and nobody but those who sleep would take it."""
    assert driving.caller_takes(never, FOREVER)

    def call(done):
        try:
            return driving.caller_takes(done, FOREVER)
        finally:
            driving.caller_gives()

    threads = [in_thread(lambda: call(never)) for _ in range(5)]
    until(lambda: driving.callers == 5)
    done = threading.Event()
    leaving, _ = in_thread(lambda: call(done.is_set))
    until(lambda: driving.callers == 6)
    done.set()
    driving.caller_gives()
    for thread in (leaving, *(thread for thread, _ in threads)):
        thread.join(10)
        assert not thread.is_alive()
    assert [out for _, out in threads] == [[True]] * 5


def test_a_condition_that_raises_is_for_its_own_caller(driving, until):
    looks = []

    def broken() -> bool:
        looks.append(1)
        if len(looks) > 1:
            raise ValueError
        return False

    assert driving.caller_takes(never, FOREVER)

    def call() -> str:
        try:
            driving.caller_takes(broken, FOREVER)
        except ValueError:
            return "raised"
        return ""

    thread, out = in_thread(call)
    until(lambda: looks)
    driving.announce_done()
    thread.join(10)
    assert out == ["raised"]
