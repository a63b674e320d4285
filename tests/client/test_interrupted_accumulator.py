"""Groups with callers that are interrupted, cancelled or gone: the other callers still get their own answers."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
from interrupted_steps import END, until_end
from striking import Strike, Striker, by_day_some, places

from pubsub.client import AsyncClient, Client
from pubsub.client.accumulator import Accumulator
from pubsub.client.core import groups
from pubsub.client.core.chain import MESSAGES_MAX
from pubsub.client.core.changes import RowAdded
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, Interrupted, PubsubError
from pubsub.protocol import Outcome, Status
from tests.client.opened import PATIENCE, eventually, names


def waiting(client: Client, topic: str) -> int:
    """Return the number of callers in the open group of a topic."""
    return len(client._session.core.groups._waiting.get(topic, ()))


def with_company(client: Client, topic: str, company: Callable[[], None], count: int) -> list[threading.Thread]:
    """Let the next caller that opens a group get so many companions before it continues."""
    puts, threads = client._calls.puts, [threading.Thread(target=company) for _ in range(count)]

    def soon(write: Callable[[], None]) -> None:
        puts.soon = lambda again: again()
        for thread in threads:
            thread.start()
        eventually(lambda: waiting(client, topic) == count + 1)
        write()

    puts.soon = soon
    return threads


def test_a_group_whose_opener_is_interrupted_is_written_for_the_others(
    cluster: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that drives the sockets slept before the group was due, and knows of no time to write it."""
    monkeypatch.setattr(groups, "HOLD_SECONDS", 60.0)
    with cluster.client(f"client{next(names)}") as client:
        session, over = client._session, threading.Event()
        sleeper = threading.Thread(target=session.wait, args=(over.is_set, session.now + PATIENCE))
        sleeper.start()
        loop = session._messenger._loop
        eventually(lambda: loop.driver == sleeper.ident and loop._sleeping)
        answered: list[bool] = []
        threads = with_company(client, topic, lambda: answered.append(client.put(topic, b"other").done), 2)
        soon = client._calls.puts.soon

        def was_interrupted(write: Callable[[], None]) -> None:
            def strike() -> None:
                session.core.groups.answered(topic)  # It is due from now on.
                raise Strike

            soon(strike)

        client._calls.puts.soon = was_interrupted
        with pytest.raises(Strike):
            client.put(topic, b"struck")
        for thread in threads:
            thread.join(PATIENCE)
        assert answered == [True, True]
        over.set()
        session.wake()
        sleeper.join()


def test_a_thread_that_takes_anothers_answer_wakes_the_waiting_driver(nowhere: str, tmp_path: Path) -> None:
    """A put takes the answers that are here, and the driving thread may have checked before the put was done."""
    with Client("c", proxies=[nowhere], directory=tmp_path) as client:
        session, over = client._session, threading.Event()
        sleeper = threading.Thread(target=session.wait, args=(over.is_set, session.now + PATIENCE))
        sleeper.start()
        loop = session._messenger._loop
        eventually(lambda: loop.driver == sleeper.ident and loop._sleeping)
        with session.entered():
            over.set()
            session._wire.inbox.append((0, Status("s1", Outcome.SUCCESS)))
            session.turn()
            assert not loop._sleeping, "else he sleeps until something else has him look"
        sleeper.join()


@pytest.mark.parametrize("committed", [False, True])
def test_a_group_interrupted_at_its_commit_is_in_doubt_for_all(
    cluster: Embedded, topic: str, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    monkeypatch.setattr(groups, "HOLD_SECONDS", 60.0)
    name = f"client{next(names)}"
    told: list[BaseException] = []
    with cluster.client(name) as client:

        def put() -> None:
            with suppress(AssertionError):
                with pytest.raises(Interrupted) as raised:
                    client.put(topic, b"other")
                told.append(raised.value)

        threads = with_company(client, topic, put, 3)
        commit = client._session.store.commit

        def was_interrupted(changes: Any, **named: Any) -> bool:
            if any(isinstance(change, RowAdded) for change in changes):
                if committed:
                    commit(changes, **named)
                raise Strike
            return commit(changes, **named)

        monkeypatch.setattr(client._session.store, "commit", was_interrupted)
        with pytest.raises(Strike):
            client.put(topic, b"struck")
        for thread in threads:
            thread.join(PATIENCE)
        assert len(told) == 3
    with cluster.client(name) as again:
        assert again.unfinished(topic) == (4 if committed else 0)


EXIT = """
import sys, threading, time
from pathlib import Path
from pubsub.client import Client
from pubsub.client.core import groups
from pubsub.client.core.chain import MESSAGES_MAX
from pubsub.config.settings import ClientSettings

groups.HOLD_SECONDS = 600.0
proxy, folder = sys.argv[1:]
# One try that is never over: between two of them nothing is in flight for a moment, and who puts then writes alone.
settings = ClientSettings(proxies=(proxy,), directory=Path(folder), try_seconds=600.0)
client = Client("leaves", settings=settings)
chain, waiting = client._session.core.outbox.chain("t"), client._session.core.groups._waiting

def begin():
    threading.Thread(target=client.put, args=("t", b"x"), kwargs={"timeout": 600.0}, daemon=True).start()

def until(done):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)

for count in range(1, MESSAGES_MAX + 1):
    begin()
    until(lambda: len(chain.messages) == count)
for count in range(1, 4):
    begin()
    until(lambda: len(waiting.get("t", ())) == count)
print("leaves", len(chain.rows))
"""


def test_an_interpreter_with_an_open_group_exits_and_the_puts_are_kept(nowhere: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", EXIT, nowhere, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"leaves {MESSAGES_MAX}\n", "")
    with Client("leaves", proxies=[nowhere], directory=tmp_path) as client:
        assert client.unfinished("t") == MESSAGES_MAX + 3


def test_tasks_that_are_cancelled_at_any_time_have_put_once_or_not_at_all_and_the_others_once(
    cluster: Embedded, client: Client, topic: str
) -> None:
    client.subscribe(topic)
    chance = random.Random(7)
    answered: Counter[str] = Counter()
    begun: list[str] = []

    async def caller(putter: AsyncClient, name: int) -> None:
        for number in range(40):
            body = f"{name}:{number}"
            put = asyncio.ensure_future(putter.put(topic, body.encode(), timeout=PATIENCE))
            begun.append(body)
            if chance.random() < 0.3:
                for _ in range(chance.randrange(8)):
                    await asyncio.sleep(0)
                put.cancel()
            with suppress(asyncio.CancelledError):
                answered[body] += (await put).done

    async def work() -> None:
        async with cluster.async_client(f"client{next(names)}") as putter:
            await asyncio.gather(*[caller(putter, name) for name in range(16)])
            await putter.flush()
            await putter.put(topic, END.encode(), timeout=PATIENCE)

    asyncio.run(work())
    arrived = Counter(until_end(client, topic, END))
    assert max(arrived.values()) == 1
    assert answered.keys() <= arrived.keys() <= set(begun)
    assert len(answered) < len(begun)
    for name in range(16):
        own = [int(body.partition(":")[2]) for body in arrived if body.startswith(f"{name}:")]
        assert own == sorted(own)


@by_day_some
def test_an_escaping_error_of_a_signal_handlers_call_writes_nothing_twice(
    nowhere: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch, sample: int | None
) -> None:
    """The error is one of ours; it does not show that nothing was written, or that the step ended."""
    monkeypatch.setattr(groups, "HOLD_SECONDS", 60.0)

    def quietly(client: Client) -> None:
        with suppress(PubsubError):
            client.put(topic, b"share", timeout=PATIENCE)

    def once(at: int) -> int:
        settings = ClientSettings(proxies=(nowhere,), directory=tmp_path / str(at), try_seconds=60.0)
        with Client("c", settings=settings) as client:

            class Calls(BaseException):
                def __init__(self) -> None:
                    client.put(topic, b"nested", wait=False)

            threads = [threading.Thread(target=quietly, args=(client,)) for _ in range(MESSAGES_MAX + 1)]
            for sent, thread in enumerate(threads, 1):
                thread.start()
                if sent <= MESSAGES_MAX:
                    eventually(lambda sent=sent: len(client._session.core.outbox.chain(topic).messages) == sent)
            eventually(lambda: bool(client._session.core.groups._waiting.get(topic)))
            session = client._session
            striker = Striker(at, kind=Calls, within=cast("FunctionType", Accumulator._write))
            with suppress(CallerError):
                striker.run(lambda: client.put_many(topic, [b"own"], wait=False))
            if striker.place:
                assert session.unusable
                for thread in threads:
                    thread.join(PATIENCE / 2)
                    assert not thread.is_alive(), "a caller waits for a put that a cut off step held"
        for thread in threads:
            thread.join()
        with Client("c", settings=settings) as client:
            store = client._session.store
            found = [bytes(store.body(counter)) for counter, *_ in store.rows()]
            assert sum(b"own" in body for body in found) <= 1, striker.place
            assert sum(b"share" in body for body in found) <= MESSAGES_MAX + 1, striker.place
            assert not any(b"nested" in body for body in found)
        return striker.count

    for at in places(once(0), sample, 7):
        once(at)
