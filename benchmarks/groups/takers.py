"""Processes that take records: members of our groups, and single subscribers. Each obeys its parent's lines.

A line names a topic, a group and a way of taking. The process takes until nothing comes any more, and answers with the
number of records, the moments of the first and the last of them, and the processor time in between. So processes start
once, and no start is measured.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.worker import Worker, open_client, settings_in

if TYPE_CHECKING:
    from pubsub.client import Client

QUIET_SECONDS: Final = 1.0
"""A taker that gets nothing for so long has taken all."""

BATCH: Final = 1_000
"""Most records of a call."""

HANDLER_SECONDS: Final = 0.02
"""Time for which a slow handler awaits."""

CONCURRENCY: Final = 32
"""Slow handlers side by side in one member."""

TABLE: Final = "create table if not exists seen (topic text, body blob)"
EFFECT: Final = "insert into seen values (?, ?)"


class Took(NamedTuple):
    """What a taker took.

    Attributes:
        records: how many.
        begun, ended: when the line came, and when the last record was done, by `time.monotonic`.
        spent: processor time of the process in between, in seconds.
    """

    records: int
    begun: float
    ended: float
    spent: float


class Taker:
    """A process that takes records, as its parent sees it; a context manager that ends it.

    Args:
        role: `module:function`.
        arguments: passed on.
    """

    def __init__(self, role: str, *arguments: Any) -> None:
        self._worker = Worker(role, *arguments)

    @property
    def pid(self) -> int:
        """The process."""
        return self._worker.process.pid

    def said(self) -> Any:
        """The next line of the process; waits for it."""
        return self._worker.said()

    def said_within(self, seconds: float) -> Any:
        """The next line of the process; None if there is none in time. Only where a process says one line at a time."""
        output = self._worker.process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], max(0.0, seconds))
        return self.said() if ready else None

    def tell(self, **words: Any) -> None:
        """Send a line."""
        stdin = self._worker.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()

    def took(self) -> Took:
        """The answer to the last line; waits for it."""
        return Took(*self.said())

    def kill(self) -> float:
        """End it with SIGKILL; the moment of that."""
        at = time.monotonic()
        self._worker.process.kill()
        self._worker.process.wait()
        return at

    def __enter__(self) -> Taker:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__(None, None, None)


def lines() -> Iterator[dict[str, Any]]:
    """The parent's lines."""
    for line in sys.stdin:
        yield json.loads(line)


class Count:
    """Counts records until none comes for QUIET_SECONDS."""

    def __init__(self) -> None:
        self.records = 0
        self.begun = self.ended = time.monotonic()
        self._spent_at = self._spent = time.process_time()

    def add(self, records: int) -> None:
        """Count records that are done now."""
        self.records += records
        self.ended, self._spent = time.monotonic(), time.process_time()

    @property
    def took(self) -> Took:
        """All of it."""
        return Took(self.records, self.begun, self.ended, self._spent - self._spent_at)


# Ways of taking; each is done when nothing comes any more


def process(client: Client, topic: str, group: str | None, count: Count) -> None:
    """`process`: an effect of SQLite a record, which commits with the record's end."""

    def handle(message: Any, transaction: Any) -> None:
        transaction.execute(EFFECT, (message.topic, message.body))

    while done := client.process(topic, handle, QUIET_SECONDS, BATCH, group=group):
        count.add(done)


def take(client: Client, topic: str, group: str | None, count: Count) -> None:
    """`get_many`: batches, at most once."""
    while batch := client.get_many(topic, BATCH, QUIET_SECONDS, group=group):
        count.add(len(batch))


WAYS: Final[dict[str, Callable[[Client, str, str | None, Count], None]]] = {"process": process, "take": take}


def member(say: Callable[[Any], None], where: dict[str, Any], directory: str) -> Any:
    """Take part in groups, or be a single subscriber, as the parent's lines say."""
    with open_client(where, Path(directory)) as client:
        with client.transaction() as transaction:
            transaction.execute(TABLE)
        say("up")
        for line in lines():
            topic, group = line["topic"], line["group"]
            if line["way"] == "join":
                client.subscribe(topic, group=group)
                say("joined")
                continue
            count = Count()
            WAYS[line["way"]](client, topic, group, count)
            if group is not None:
                client.leave(topic, group=group)
            say(count.took)


def slow_member(say: Callable[[Any], None], where: dict[str, Any], directory: str) -> Any:
    """The same with handlers that wait, CONCURRENCY of them side by side."""
    asyncio.run(_slow(say, where, directory))


async def _slow(say: Callable[[Any], None], where: dict[str, Any], directory: str) -> None:
    from pubsub.client import AsyncClient

    async with AsyncClient(Path(directory).name, settings=settings_in(where, Path(directory))) as client:
        with client.transaction() as transaction:
            transaction.execute(TABLE)

        async def handle(message: Any, transaction: Any) -> None:
            await asyncio.sleep(HANDLER_SECONDS)
            transaction.execute(EFFECT, (message.topic, message.body))

        say("up")
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            words = json.loads(line)
            topic, group = words["topic"], words["group"]
            if words["way"] == "join":
                await client.subscribe(topic, group=group)
                say("joined")
                continue
            count = Count()
            words = {"group": group, "concurrency": CONCURRENCY}
            while done := await client.process(topic, handle, QUIET_SECONDS, BATCH, **words):
                count.add(done)
            await client.leave(topic, group=group)
            say(count.took)
