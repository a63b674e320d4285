"""One message at a time by many callers of one client, as a web application puts: each waits for its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import TYPE_CHECKING, Final

from pubsub.cli.bench.worker import settings_in
from pubsub.client import AsyncClient

if TYPE_CHECKING:
    from pubsub.cli.bench.stage import Stage

TASKS: Final = 64
THREADS: Final = 16


async def by_tasks(put: Callable[[], Awaitable[object]], secs: float) -> float:
    """TASKS tasks put one message after another; puts a second."""
    done = 0
    end = time.perf_counter() + secs

    async def work() -> None:
        nonlocal done
        while True:
            await put()
            done += 1
            if time.perf_counter() >= end:
                return

    begun = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(TASKS)])
    return done / (time.perf_counter() - begun)


def by_threads(put: Callable[[], object], secs: float) -> float:
    """THREADS threads put one message after another; puts a second."""
    done = [0] * THREADS
    end = time.perf_counter() + secs

    def work(number: int) -> None:
        while not done[number] or time.perf_counter() < end:
            put()
            done[number] += 1

    threads = [Thread(target=work, args=(number,)) for number in range(THREADS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begun)


def without_waiting(put: Callable[[], object], flush: Callable[[], object], secs: float) -> float:
    """One caller puts and does not wait, and waits for all at the end; puts a second."""
    begun, done = time.perf_counter(), 0
    while not done or time.perf_counter() < begun + secs:
        for _ in range(100):
            put()
        done += 100
    flush()
    return done / (time.perf_counter() - begun)


def concurrent_async(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """TASKS tasks await `put` of one `AsyncClient`."""
    topic, body, directory = stage.name("topic"), bytes(size), stage.directory / stage.name("putter")

    async def measure() -> float:
        async with AsyncClient(directory.name, settings=settings_in(stage.where, directory)) as client:
            await client.put(topic, b"first")
            return await by_tasks(lambda: client.put(topic, body), secs)

    return {"rate": asyncio.run(measure())}


def concurrent_threads(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """THREADS threads call `put` of one `Client`."""
    topic, body = stage.name("topic"), bytes(size)
    with stage.client("putter") as client:
        client.put(topic, b"first")
        return {"rate": by_threads(lambda: client.put(topic, body), secs)}


def put_nowait(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """`put(wait=False)` in a loop, and `flush` at its end."""
    topic, body = stage.name("topic"), bytes(size)
    with stage.client("putter") as client:
        client.put(topic, b"first")
        return {"rate": without_waiting(lambda: client.put(topic, body, wait=False), client.flush, secs)}
