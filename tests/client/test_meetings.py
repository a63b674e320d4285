"""Retries, seeks, patterns and dead letters where one meets another: nothing is lost, stuck or done twice."""

from __future__ import annotations

import asyncio
import os
import time
from math import inf
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from pubsub import Later, Reject
from pubsub.base.clock import SystemClock
from pubsub.client import Message, Transaction
from pubsub.client.core.cursor import Cursor
from pubsub.client.core.waiting import Retry
from pubsub.client.flows.serving import LOOK_SECONDS
from pubsub.client.storage import letter_requests
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, NotSubscribed, StateCopied
from pubsub.protocol.names import letters_topic
from tests.client.opened import PATIENCE, names

LOG = "a" * 16


@pytest.fixture
def name() -> str:
    return f"client{next(names)}"


def reject(message: Message, transaction: Transaction) -> None:
    raise Reject("no")


# A seek, or an unsubscribe, while a handler runs


@pytest.mark.parametrize("error", [Later(60.0), Reject("no")])
def test_a_handler_that_puts_off_or_rejects_during_a_seek_raises_nothing(
    cluster: Embedded, topic: str, name: str, error: Exception
) -> None:
    with cluster.client(f"p{name}") as publisher:
        publisher.configure(topic, keep="ever")
        publisher.put(topic, b"x")

    async def run() -> None:
        async with cluster.async_client(name) as client:
            await client.subscribe(topic, start="earliest")
            replays: list[int] = []
            errors = [error]

            async def handle(message: Message, transaction: Transaction) -> None:
                replays.append(message.replay)
                if errors:
                    sought.set()
                    await moved.wait()
                    raise errors.pop()

            sought, moved = asyncio.Event(), asyncio.Event()
            running = asyncio.create_task(client.process(topic, handle, timeout=PATIENCE, max=1))
            await asyncio.wait_for(sought.wait(), PATIENCE)
            await client.seek(topic, "earliest")
            moved.set()
            assert await running == 1, "the message comes again at once, in the replay"
            assert (replays, client.dead_letters()) == ([0, 1], [])

    asyncio.run(run())


def test_a_handler_that_puts_off_after_an_unsubscribe_ends_the_call_by_the_reason(
    cluster: Embedded, topic: str, name: str
) -> None:
    async def run() -> None:
        async with cluster.async_client(name) as client:
            await client.subscribe(topic)
            await client.put(topic, b"x")

            async def handle(message: Message, transaction: Transaction) -> None:
                await client.unsubscribe(topic)
                raise Later(1.0)

            with pytest.raises(NotSubscribed):
                await client.process(topic, handle, timeout=PATIENCE, hold="none")

    asyncio.run(run())


def test_a_message_that_waited_before_a_new_place_holds_up_nothing_behind_that() -> None:
    cursor = Cursor(dict)
    cursor.begin((LOG, 0))
    cursor.retry = Retry((LOG, 1), 3000.0, met=True)
    assert cursor.gated(0.0)
    cursor.begin((LOG, 5))  # The log up to there was lost, or given up.
    assert not cursor.gated(0.0)


# Two calls on one topic


def test_a_call_does_not_poll_for_a_due_message_while_another_call_has_one_in_hand(
    cluster: Embedded, topic: str, name: str
) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"off")
        client.put(topic, b"now")
        dues: list[float] = []

        def handle(message: Message, transaction: Transaction) -> None:
            gets = client._calls.gets
            sub = gets.core.subscriptions[topic]
            dues.append(gets._next_due([sub]))
            if message.body == b"off":
                raise Later(0.0)

        for _ in range(3):
            client.process(topic, handle, timeout=PATIENCE, max=1, hold="none")
        sub = client._calls.gets.core.subscriptions[topic]
        assert client._calls.gets._next_due([sub]) < inf, "the message that was put off is due"
        assert dues == [inf] * 3


# Patterns


@pytest.mark.parametrize("again", [False, True])
def test_leaving_a_pattern_gives_up_the_messages_that_wait(
    cluster: Embedded, topic: str, name: str, again: bool
) -> None:
    def put_off(message: Message, transaction: Transaction) -> None:
        raise Later(0.0)

    with cluster.client(name) as client:
        client.subscribe(f"{topic}.*")
        client.put(f"{topic}.a", b"off")
        assert client.process(f"{topic}.*", put_off, timeout=PATIENCE, max=1, hold="none") == 1
        waiting = client._session.core.waiting
        assert len(waiting) == 1
        if again:
            client.subscribe(f"{topic}.*", fresh=True)
        else:
            client.unsubscribe(f"{topic}.*")
        assert len(waiting) == 0
        assert list(client._session.store.waiting()) == []


def test_a_topic_of_a_pattern_is_sought_by_its_own_name(cluster: Embedded, topic: str, name: str) -> None:
    with cluster.client(name) as client:
        client.configure(f"{topic}.a", keep="ever")
        client.subscribe(f"{topic}.*")
        client.put(f"{topic}.a", b"x")
        assert [client.get(f"{topic}.*", timeout=PATIENCE).replay] == [0]  # type: ignore[union-attr]
        with pytest.raises(CallerError, match="by its own name"):
            client.seek(f"{topic}.*", "earliest")
        assert client.seek(f"{topic}.a", "earliest") == 1
        found = client.get(f"{topic}.*", timeout=PATIENCE)
        assert found is not None
        assert (found.body, found.replay) == (b"x", 1)


def test_a_renewal_begins_patterns_anew_as_it_does_topics(cluster: Embedded, topic: str, name: str) -> None:
    with cluster.client(name) as client:
        client.subscribe(f"{topic}.*")
        client.subscribe(f"else{topic}.*")
        client.put(f"{topic}.a", b"old")
        assert client.get(f"{topic}.*", timeout=PATIENCE) is not None
        before = {pattern: (number, stamp) for pattern, _, _, number, stamp in client._session.store.patterns()}
        client.renew()
        assert [on for _, on, *_ in client._session.store.patterns()] == [True, True]
        client.subscribe(f"{topic}.*")  # Each proxy confirms it.
        client.subscribe(f"else{topic}.*")
        client.put(f"{topic}.b", b"new")
        for message in client.messages(f"{topic}.*", timeout=PATIENCE):
            if message.body == b"new":
                break
        for pattern, on, settled, number, stamp in client._session.store.patterns():
            assert (on, settled) == (True, True)
            assert (number > before[pattern][0], stamp > before[pattern][1]) == (True, True), pattern


# Dead letters


def test_a_client_that_handles_its_own_topic_of_letters_puts_none_of_them_there_again(
    cluster: Embedded, topic: str, name: str
) -> None:
    with cluster.client(name, dead_letters="topic") as client:
        own = letters_topic(name)
        client.subscribe(topic)
        client.subscribe(own)
        client.put(topic, b"x")
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        assert client.process(own, reject, timeout=PATIENCE) == 1
        assert client.unfinished(own) == 0
        assert [letter.topic for letter in client.dead_letters()] == [topic, own]


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize("where", ["table", "topic"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(os.fsdecode(b"caf\xe9")), "FileNotFoundError: caf\\udce9"),
        (Reject(os.fsdecode(b"caf\xe9")), "caf\\udce9"),
        (Speechless(), "Speechless: its text cannot be read"),
    ],
)
def test_an_error_with_any_text_makes_a_dead_letter(
    cluster: Embedded, topic: str, name: str, error: Exception, text: str, where: str
) -> None:
    def handle(message: Message, transaction: Transaction) -> None:
        raise error

    with cluster.client(name, settings=ClientSettings(handler_attempts=1, dead_letters=where)) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client.process(topic, handle, timeout=PATIENCE) == 1
        (letter,) = client.dead_letters()
        assert letter.error == text


def test_a_command_that_is_interrupted_leaves_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(letter_requests, "_appears", interrupted)
    with pytest.raises(KeyboardInterrupt):
        letter_requests.ask(tmp_path / "c.db", {"purge": 0.0})
    assert not list(tmp_path.glob("c.requests/*"))


def test_a_request_that_a_killed_command_left_is_not_carried_out_later(
    cluster: Embedded, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client("c", directory=tmp_path) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client.process(topic, reject, timeout=PATIENCE) == 1
        folder = letter_requests.folder_of(Path(client.path))
        folder.mkdir()
        (folder / f"{1:020}-00000000.json").write_text('{"purge": 0, "topic": null}', encoding="utf-8")
        client._calls.gets.requests.at = 0.0  # type: ignore[union-attr]
        assert client.process(topic, reject, timeout=0.0) == 0
        assert len(client.dead_letters()) == 1
        assert not list(folder.iterdir())


# Copies of a state directory


def test_a_copied_directory_does_not_handle_its_waiting_messages_once_more(
    cluster: Embedded, tmp_path: Path, topic: str, name: str
) -> None:
    handled: list[bytes] = []

    def handle(message: Message, transaction: Transaction) -> None:
        if message.body == b"off" and message.attempts == 1:
            raise Later(0.0)
        handled.append(message.body)

    with cluster.client(name, directory=tmp_path / "one") as client:
        client.subscribe(topic)
        client.put(topic, b"off")
        assert client.process(topic, handle, timeout=PATIENCE, max=1, hold="none") == 1
    copytree(tmp_path / "one", tmp_path / "two")
    with cluster.client(name, directory=tmp_path / "one") as client:
        client.put(topic, b"on")
        while len(handled) < 2:
            client.process(topic, handle, timeout=PATIENCE, max=1, hold="none")
    with cluster.client(name, directory=tmp_path / "two") as copy, pytest.raises(StateCopied):
        copy.process(topic, handle, timeout=PATIENCE, hold="none")
    assert sorted(handled) == [b"off", b"on"]


class Shifted(SystemClock):
    """A wall clock that a test sets."""

    shift = 0.0

    def wall(self) -> float:
        return time.time() + self.shift


def test_a_worker_handles_a_call_that_is_due_at_its_start_without_a_further_call(cluster: Embedded, name: str) -> None:
    asked: list[bytes] = []
    service, clock = f"service{name}", Shifted()

    def put_off(request: Any, transaction: Transaction) -> bytes:
        asked.append(request.body)
        raise Later(3000.0)

    def answer(request: Any, transaction: Transaction) -> bytes:
        return b"done"

    with cluster.client(f"{name}caller") as caller:
        with cluster.client(name, clock=clock) as worker:
            caller.request(service, b"x", id="x")
            while not asked:
                assert worker.serve(service, put_off, timeout=0.2) == 0
        clock.shift = 3001.0
        with cluster.client(name, clock=clock) as worker:
            begun = time.monotonic()
            assert worker.serve(service, answer, timeout=PATIENCE, max=1) == 1
            assert time.monotonic() - begun < LOOK_SECONDS
        assert caller.reply("x", timeout=PATIENCE).body == b"done"
