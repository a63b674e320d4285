"""Exceptions of signal handlers within a callback of the driving thread: the caller gets them, as anywhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pubsub.client import Client
from pubsub.embedded import Embedded
from tests.client.opened import PATIENCE, names


class Alarm(Exception):
    """The exception of the signal handler: a time-out of the application, which is an `Exception`."""


def was_interrupted(call: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
    """Run a function that is interrupted at its beginning or end, on the main thread, which alone handles signals."""

    def strikes(*arguments: Any, **named: Any) -> Any:
        main = threading.current_thread() is threading.main_thread()
        if main and before:
            raise Alarm
        result = call(*arguments, **named)
        if main:
            raise Alarm
        return result

    return strikes


def put_on(client: Client, topic: str) -> None:
    """Put until one is interrupted: if another thread drives when an answer comes, that put is not."""
    while True:
        client.put(topic, b"x", timeout=PATIENCE)


def put_until_struck(client: Client, topic: str) -> None:
    with pytest.raises(Alarm):
        put_on(client, topic)


@pytest.fixture
def writer(cluster: Embedded, topic: str) -> Client:
    """A client that has put to the topic; the test closes it."""
    made = cluster.client(f"struck{next(names)}")
    made.put(topic, b"first", timeout=PATIENCE)
    return made


def test_an_exception_while_an_answer_is_taken_reaches_the_caller_and_the_client_continues(
    writer: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer, monkeypatch.context() as patch:
        patch.setattr(writer._session._wire, "_answered", was_interrupted(writer._session._wire._answered, before=True))
        put_until_struck(writer, topic)
        patch.undo()
        assert writer.put(topic, b"after", timeout=PATIENCE).done


@pytest.mark.parametrize("before", [True, False], ids=["begins", "ends"])
def test_an_exception_within_a_turn_reaches_the_caller_and_the_client_continues(
    writer: Client, topic: str, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    with writer, monkeypatch.context() as patch:
        patch.setattr(writer._session, "turn", was_interrupted(writer._session.turn, before=before))
        put_until_struck(writer, topic)
        patch.undo()
        assert writer.put(topic, b"after", timeout=PATIENCE).done


@pytest.mark.parametrize("before", [True, False], ids=["begins", "ends"])
def test_an_exception_within_a_timer_leaves_no_lock_taken(
    writer: Client, topic: str, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The timer has the lock at its end, as if an exception came between taking the lock and the `with` block."""
    session = writer._session

    class Due:
        def tick(self, now: float) -> None:
            if threading.current_thread() is threading.main_thread():
                session.timers.remove(self)  # type: ignore[arg-type]
                if not before:
                    session.lock.acquire()
                raise Alarm

        def deadline(self) -> float:
            return float("-inf")

        def return_taken(self) -> None:
            """This timer has none."""

    with writer:
        session.timers.append(Due())  # type: ignore[arg-type]
        put_until_struck(writer, topic)
        assert not session.held_here
        assert writer.put(topic, b"after", timeout=PATIENCE).done
