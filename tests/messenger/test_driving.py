"""One thread at a time: callers before the I/O thread, and a grace between the two.

The rules are those of docs/explanation/client-session.md, D5, D6 and D7.
"""

import threading
import time
from collections.abc import Callable

import pytest

from pubsub.base.clock import SystemClock
from pubsub.messenger.driving import Driving

FOREVER = time.monotonic() + 3600


class Strike(BaseException):
    """What a signal's handler raises."""


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


def test_only_one_thread_takes_the_turn(driving):
    assert driving.try_take()
    assert not driving.try_take()
    driving.give_up()
    assert driving.try_take()


def test_a_caller_takes_a_free_turn_at_once(driving, woken):
    assert driving.caller_takes(never, FOREVER)
    assert not woken


def test_a_caller_wakes_the_driver_and_gets_the_turn(driving, woken, until):
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


def test_the_thread_yields_to_a_driving_caller_and_takes_over_afterwards(driving, until):
    assert driving.caller_takes(never, FOREVER)
    thread, out = in_thread(lambda: driving.thread_takes(never))
    until(lambda: driving._parked)
    assert not out
    driving.caller_gives()
    thread.join(10)
    assert out == [True]


def test_the_thread_ends_after_stop(driving, until):
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


def waiting(driving: Driving, done: Callable[[], bool], seconds: float = 10.0) -> tuple[threading.Thread, list[bool]]:
    """A caller who waits, and says whether it got the turn; it keeps it until it is told to go."""
    said: list[bool] = []

    def wait() -> None:
        said.append(driving.caller_takes(done, time.monotonic() + seconds))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, said


def test_only_waiting_callers_with_a_result_are_woken(driving, until):
    looks = [0, 0, 0]
    answered = [False, False, False]

    def done(number: int) -> Callable[[], bool]:
        def look() -> bool:
            looks[number] += threading.current_thread() is not threading.main_thread()
            return answered[number]

        return look

    assert driving.try_take()
    callers = [waiting(driving, done(number)) for number in range(3)]
    until(lambda: driving.callers == 3 and all(looks))
    before = list(looks)
    answered[1] = True
    driving.announce()
    callers[1][0].join()
    assert callers[1][1] == [False]
    assert driving.callers == 2
    assert (looks[0], looks[2]) == (before[0], before[2]), "they were not woken"
    answered[:] = [True, True, True]
    driving.announce()
    for thread, _ in callers:
        thread.join()
    driving.give_up()


def test_a_waiting_caller_drives_when_the_driver_leaves(driving, until):
    assert driving.try_take()
    over = threading.Event()
    callers = [waiting(driving, over.is_set) for _ in range(3)]
    until(lambda: driving.callers == 3)
    driving.give_up()
    until(lambda: sum(len(said) for _, said in callers) == 1)
    assert [said for _, said in callers if said] == [[True]]
    over.set()
    driving.announce()
    for thread, _ in callers:
        thread.join()


def test_another_caller_drives_if_the_chosen_one_is_interrupted(driving, until, monkeypatch):
    assert driving.try_take()
    was_interrupted: list[BaseException] = []

    def wait() -> None:
        try:
            driving.caller_takes(never, FOREVER)
        except Strike as error:
            was_interrupted.append(error)

    first = threading.Thread(target=wait)
    first.start()
    until(lambda: driving.callers == 1)
    second, heard = waiting(driving, never)
    until(lambda: driving.callers == 2)
    take = driving.try_take

    def strikes() -> bool:
        if threading.current_thread() is first:
            raise Strike
        return take()

    monkeypatch.setattr(driving, "try_take", strikes)
    driving.give_up()
    first.join()
    second.join()
    assert was_interrupted
    assert heard == [True]


def test_a_caller_whose_condition_raises_gets_the_exception(driving, until):
    wrong = threading.Event()
    said: list[BaseException] = []

    def done() -> bool:
        if wrong.is_set():
            raise ValueError
        return False

    def wait() -> None:
        try:
            driving.caller_takes(done, time.monotonic() + 10.0)
        except ValueError as error:
            said.append(error)

    assert driving.try_take()
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: driving.callers == 1)
    wrong.set()
    driving.announce()
    thread.join()
    assert said
    assert driving.callers == 0
    driving.give_up()


def test_an_interrupted_notice_of_the_free_turn_is_repeated_by_recover(driving, until, monkeypatch):
    assert driving.caller_takes(never, FOREVER)
    thread, said = waiting(driving, never, 30.0)
    until(lambda: driving.callers == 1)
    with monkeypatch.context() as patch:

        def strikes() -> None:
            raise Strike

        patch.setattr(driving, "_tell", strikes)
        with pytest.raises(Strike):
            driving.caller_gives()
    driving.recover()
    thread.join(10)
    assert said == [True]


def test_a_signals_handler_that_waits_within_a_wait_leaves_that_one_to_be_woken(driving, until, monkeypatch):
    """The handler runs between two instructions of the call that waits, on its thread."""
    done, inner = threading.Event(), []
    assert driving.try_take()
    take = driving.try_take

    def strikes() -> bool:
        if threading.current_thread() is thread and not inner:
            inner.append("begins")
            inner.append(driving.caller_takes(lambda: True, FOREVER))
        return take()

    said: list[bool] = []
    thread = threading.Thread(target=lambda: said.append(driving.caller_takes(done.is_set, FOREVER)))
    monkeypatch.setattr(driving, "try_take", lambda: strikes() if driving._waiting else take())
    thread.start()
    until(lambda: len(inner) == 2)
    assert driving.callers == 1
    done.set()
    driving.announce()
    thread.join(10)
    assert said == [False]
    driving.give_up()


def test_a_parking_thread_misses_no_wakeup(driving, until):
    """The turn is given back between its look and its sleep; where nobody else calls, nobody would say it again."""
    lock, waits, slept = driving._lock, driving._thread_waits, []

    class Busy:
        """It is given back right after the thread has found it taken."""

        release, _is_owned = lock.release, lock._is_owned

        def acquire(self, blocking: bool = True) -> bool:
            taken = lock.acquire(blocking=blocking)
            if not taken and threading.current_thread() is not threading.main_thread():
                gives.set()
                driver.join()
            return taken

    class Waits:
        release = waits.release

        def acquire(self, timeout: float) -> bool:
            slept.append(timeout)
            return waits.acquire(timeout=timeout)

    held, gives = threading.Event(), threading.Event()

    def drives() -> None:
        assert driving.try_take()
        held.set()
        gives.wait()
        driving.give_up()

    driver = threading.Thread(target=drives)
    driver.start()
    held.wait()
    driving._lock, driving._thread_waits = Busy(), Waits()
    thread, out = in_thread(lambda: driving.thread_takes(never))
    thread.join(10)
    assert out == [True]
    assert max(slept, default=0.0) < 1.0
