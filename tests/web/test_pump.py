"""The loop that does due work: at once, never twice at one time, and further on after a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from pubsub.errors import StorageError
from pubsub.web import pump
from pubsub.web.pump import Pump, StoreThread
from pubsub.web.schedule import Due, Schedule


class Numbered(Due[str]):
    """Names that are due at times of a clock that stands."""

    def __init__(self) -> None:
        super().__init__(Schedule(2, 2), lambda: self.now, 60.0)
        self.now, self.sweeps, self.fails = 0.0, 0, False

    def sweep(self) -> float:
        self.sweeps += 1
        if self.fails:
            raise StorageError("/x", "refuses")
        return 0.0


def pumping(due: Numbered, do: Callable[[str], Awaitable[None]], act: Callable[[Pump[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        store = StoreThread()
        made = Pump("numbers", store, due, do)
        made.start()
        async with asyncio.timeout(30.0):
            await act(made)
        await made.close()
        store.close()

    asyncio.run(main())


def test_due_work_is_done_and_later_work_at_its_time() -> None:
    due, done = Numbered(), asyncio.Queue[str]()
    due.schedule.set("a", 0.0)
    due.schedule.set("later", 5.0)

    async def act(made: Pump[str]) -> None:
        assert await done.get() == "a"
        due.now = 5.0
        made.wake()
        assert await done.get() == "later"
        due.schedule.set("b", 0.0)
        made.wake()
        assert await done.get() == "b"

    pumping(due, done.put, act)


def test_concurrent_work_stays_within_the_limit() -> None:
    due, running, most = Numbered(), 0, 0
    for number in range(6):
        due.schedule.set(str(number), 0.0)
    done = asyncio.Queue[str]()

    async def do(name: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        await done.put(name)

    async def act(made: Pump[str]) -> None:
        assert sorted([await done.get() for _ in range(6)]) == [str(number) for number in range(6)]

    pumping(due, do, act)
    assert most == 2


def test_failed_work_is_logged_and_repeated_later_and_other_work_continues(caplog: pytest.LogCaptureFixture) -> None:
    due, done = Numbered(), asyncio.Queue[str]()
    for name in ("bad", "worse", "good"):
        due.schedule.set(name, 0.0)

    async def do(name: str) -> None:
        if name == "bad":
            raise StorageError("/x", "refuses")
        if name == "worse":
            raise ValueError("a mistake")
        await done.put(name)

    async def act(made: Pump[str]) -> None:
        assert await done.get() == "good"
        while due.schedule.busy:
            await asyncio.sleep(0)
        assert due.begin() == ([], 60.0)
        assert {"bad", "worse"} == {name for name in ("bad", "worse", "good") if name in due.schedule}

    with caplog.at_level(logging.WARNING):
        pumping(due, do, act)
    assert "refuses" in caplog.text
    assert "a mistake" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_a_pump_sweeps_at_its_start_and_regularly(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setattr(pump, "AGAIN_SECONDS", 0.01)
    due = Numbered()
    due.fails = fails

    async def do(name: str) -> None:
        raise AssertionError

    async def act(made: Pump[str]) -> None:
        while due.sweeps < 3:
            await asyncio.sleep(0.01)

    pumping(due, do, act)


def test_work_on_the_stores_thread_is_completed_though_its_caller_is_cancelled() -> None:
    async def main() -> None:
        store, ended = StoreThread(), []
        call = asyncio.create_task(store(lambda: ended.append(1)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await store(lambda: None)
        assert ended == [1]
        store.close()

    asyncio.run(main())
