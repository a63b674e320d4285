"""Waiting coroutines: each is woken by its condition or at its own deadline, with one alarm for all."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

import pytest
from striking import Strike, Striker

from pubsub.client.awaited import Awaited
from pubsub.client.flows.flow import Wait
from pubsub.client.session import Session


class Clocked:
    """The parts of a session that `Awaited` uses."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[], None]] = []
        self.strikes = 0
        """Number of next clock readings that are interrupted."""

    @property
    def now(self) -> float:
        if self.strikes:
            self.strikes -= 1
            raise Strike
        return time.monotonic()


def awaited() -> tuple[Awaited, Clocked]:
    session = Clocked()
    return Awaited(cast(Session, session)), session


def never() -> bool:
    return False


async def timers(loop: asyncio.AbstractEventLoop) -> list[asyncio.TimerHandle]:
    await asyncio.sleep(0)
    scheduled: list[Any] = cast(Any, loop)._scheduled
    return [timer for timer in scheduled if not timer.cancelled()]


def test_each_wait_ends_at_its_own_deadline_in_any_order() -> None:
    waits, session = awaited()
    ended: list[int] = []

    async def wait(number: int, seconds: float) -> None:
        deadline = session.now + seconds
        assert await waits.wait(Wait(never, deadline)) is False
        assert session.now >= deadline
        ended.append(number)

    async def main() -> None:
        await asyncio.gather(wait(2, 0.2), wait(0, 0.01), wait(1, 0.1), wait(3, 0.3))

    asyncio.run(main())
    assert ended == [0, 1, 2, 3]


def test_a_hundred_waits_with_the_same_timeout_have_one_alarm() -> None:
    waits, session = awaited()
    over = False

    async def main() -> None:
        nonlocal over
        tasks = [asyncio.create_task(waits.wait(Wait(lambda: over, session.now + 30.0))) for _ in range(100)]
        assert len(await timers(asyncio.get_running_loop())) == 2  # It and the one behind it.
        over = True
        session.watchers[0]()
        assert await asyncio.gather(*tasks) == [True] * 100

    asyncio.run(main())


def test_an_alarm_does_not_keep_a_loop_alive_and_an_endless_wait_sets_none() -> None:
    over = False

    async def main() -> None:
        nonlocal over
        waits, session = awaited()
        forever = asyncio.create_task(waits.wait(Wait(lambda: over, float("inf"))))
        assert await timers(asyncio.get_running_loop()) == []
        bounded = asyncio.create_task(waits.wait(Wait(lambda: over, session.now + 30.0)))
        assert len(await timers(asyncio.get_running_loop())) == 2  # It and the one behind it.
        over = True
        session.watchers[0]()
        await asyncio.gather(forever, bounded)
        found = weakref.ref(waits)
        del waits, session
        gc.collect()
        assert found() is None
        assert len(await timers(asyncio.get_running_loop())) == 2

    asyncio.run(main())


def test_waits_of_two_event_loops_are_woken_separately() -> None:
    waits, session = awaited()

    async def main() -> None:
        assert await waits.wait(Wait(never, session.now + 0.01)) is False

    asyncio.run(main())
    asyncio.run(main())


def test_short_waits_beside_a_long_one_leave_no_alarms_behind() -> None:
    waits, session = awaited()

    async def main() -> None:
        begun = session.now
        long = asyncio.create_task(waits.wait(Wait(never, begun + 1000.0)))
        for _ in range(50):
            await waits.wait(Wait(never, session.now + 0.001))
        # Of each second in which one was begun there is one to come that rings for a second time.
        assert len(await timers(asyncio.get_running_loop())) <= 4 + int(session.now - begun)
        long.cancel()

    asyncio.run(main())


def test_an_exception_while_an_alarm_is_set_or_rings_leaves_no_endless_wait() -> None:
    waits, session = awaited()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        deadline = session.now + 0.01
        session.strikes = 1
        with pytest.raises(Strike):
            await waits.wait(Wait(never, deadline))
        assert await waits.wait(Wait(never, session.now + 0.01)) is False
        waiting = asyncio.create_task(waits.wait(Wait(never, session.now + 0.01)))
        await asyncio.sleep(0)
        session.strikes = 1  # As it rings.
        assert await waiting is False

    asyncio.run(asyncio.wait_for(main(), 30.0))


@pytest.mark.parametrize("places", range(1, 12))
def test_an_exception_anywhere_in_an_alarm_delays_it_by_two_seconds_at_most(places: int) -> None:
    """An event loop logs an exception in a callback, and continues."""
    waits, session = awaited()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        short = asyncio.create_task(waits.wait(Wait(never, session.now + 0.01)))
        long = asyncio.create_task(waits.wait(Wait(never, session.now + 0.05)))
        await asyncio.sleep(0)
        striker = Striker(places, within=cast(FunctionType, Awaited._ring))
        sys.settrace(striker.enter)
        try:
            assert await asyncio.gather(short, long) == [False, False]
        finally:
            sys.settrace(None)

    asyncio.run(asyncio.wait_for(main(), 30.0))


def test_an_exception_while_waits_are_woken_leaves_no_wait_beyond_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, session = awaited()
    over = False

    def was_interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise Strike

    async def main() -> None:
        nonlocal over
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        waiting = asyncio.create_task(waits.wait(Wait(lambda: over, session.now + 0.1)))
        await asyncio.sleep(0)
        over = True
        monkeypatch.setattr("pubsub.client.awaited._finish", was_interrupted)
        session.watchers[0]()
        assert await waiting is True

    asyncio.run(asyncio.wait_for(main(), 30.0))


def test_an_exception_at_the_first_alarm_leaves_a_working_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, session = awaited()
    wrong: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: wrong.append(context))
        later, rung = loop.call_later, asyncio.Event()

        def was_interrupted(*arguments: Any) -> None:
            monkeypatch.undo()
            later(*arguments)
            raise Strike

        monkeypatch.setattr(loop, "call_later", was_interrupted)
        with pytest.raises(Strike):
            await waits.wait(Wait(never, session.now))
        loop.call_later(0.01, rung.set)
        await rung.wait()

    asyncio.run(asyncio.wait_for(main(), 30.0))
    assert not wrong


def test_a_woken_wait_reports_success_though_another_took_the_result() -> None:
    waits, session = awaited()
    over = False

    async def main() -> None:
        nonlocal over
        waiting = asyncio.create_task(waits.wait(Wait(lambda: over, session.now + 30.0)))
        await asyncio.sleep(0)
        over = True
        session.watchers[0]()
        over = False
        assert await waiting is True

    asyncio.run(asyncio.wait_for(main(), 30.0))
    assert not waits._waits
    assert not waits._woken


def test_a_wait_cancelled_while_it_is_woken_leaves_nothing_behind() -> None:
    waits, session = awaited()

    async def main() -> None:
        waiting: asyncio.Task[bool]

        def done() -> bool:
            return waiting.cancelling() > 0

        waiting = asyncio.create_task(waits.wait(Wait(done, session.now + 30.0)))
        await asyncio.sleep(0)
        waiting.cancel()
        session.watchers[0]()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 30.0))
    assert not waits._woken
