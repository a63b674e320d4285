"""One message at a time by many callers of one client, as a web application puts: each waits for its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from benchmarks.worker import Worker, settings_in
from pubsub.cli.bench import END
from pubsub.cli.bench.floors import percentile
from pubsub.client import AsyncClient

if TYPE_CHECKING:
    from benchmarks.stage import Stage

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


def stamped(
    say: Callable[[Any], None], where: dict[str, Any], directory: str, topic: str, size: int, secs: float
) -> Any:
    """TASKS tasks put messages that begin with the moment of their put; seconds that a put takes (p50). END follows."""
    taken: list[float] = []
    rest = bytes(max(0, size - 8))

    async def measure() -> None:
        async with AsyncClient(Path(directory).name, settings=settings_in(where, Path(directory))) as client:

            async def put() -> None:
                begun = time.monotonic_ns()
                await client.put(topic, begun.to_bytes(8, "little") + rest)
                taken.append((time.monotonic_ns() - begun) / 1e9)

            await client.put(topic, b"first")
            say("ready")
            await by_tasks(put, secs)
            await client.put(topic, END)

    asyncio.run(measure())
    return {"p50": percentile(taken, 0.5)}


def delivery_busy(stage: Stage, size: int, secs: float) -> dict[str, float]:
    """From before a put by one of TASKS tasks to the message in another process, and how much of it is not the put."""
    topic, directory = stage.name("topic"), str(stage.directory / stage.name("putter"))
    arguments = stage.where, directory, topic, size, secs
    with stage.client("taker") as client, Worker(f"{__name__}:{stamped.__name__}", *arguments) as load:
        client.subscribe(topic)
        load.said()
        load.go()
        taken: list[float] = []
        over = False
        while not over:
            for body in client.get_many(topic, timeout=10.0).bodies():
                if body == END:
                    over = True
                elif len(body) >= 8:
                    taken.append((time.monotonic_ns() - int.from_bytes(body[:8], "little")) / 1e9)
        p50 = percentile(taken, 0.5)
        return {"p50": p50 * 1e6, "over the put": (p50 - load.said()["p50"]) * 1e6}
