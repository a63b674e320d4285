"""Subscribing during another event: the test causes each case and waits for none."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from pubsub.client import Client
from pubsub.client.core.changes import Change, Confirmed
from pubsub.client.flows.flow import Flow
from pubsub.client.steps import Step
from pubsub.protocol.names import reply_topic
from tests.client.opened import PATIENCE


def over(flow: Flow[None]) -> bool:
    """Return True if a call after its deadline ends by that, and raises nothing."""
    try:
        flow.send(False)
    except StopIteration:
        return True
    return False


def test_an_intent_confirmed_by_another_call_meanwhile_is_not_made_anew(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, begin, topic = client._session, client._calls.subscribing.begin, reply_topic(client.name)
    until = session.until

    def other_call_first(timeout: float | None, now: float | None = None) -> float:
        monkeypatch.undo()
        client._run(begin(topic, PATIENCE))
        numbers.append(session.core.subscriptions[topic].intent.number)
        return until(timeout, now)

    numbers: list[int] = []
    monkeypatch.setattr(session, "until", other_call_first)
    client._run(begin(topic, PATIENCE))
    assert numbers == [session.core.subscriptions[topic].intent.number]


def test_an_answer_that_a_slow_disk_has_at_the_deadline_counts(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, at_the_disk, waited_for = client._session, threading.Event(), threading.Event()
    commit, entered = session.commit, session.entered

    def slow(changes: Sequence[Change], *, fsync: bool = False) -> bool:
        if any(isinstance(change, Confirmed) for change in changes):
            at_the_disk.set()
            assert waited_for.wait(PATIENCE)
        return commit(changes, fsync=fsync)

    def at_the_lock() -> Step:
        if at_the_disk.is_set():
            waited_for.set()
        return entered()

    monkeypatch.setattr(session, "commit", slow)
    monkeypatch.setattr(session, "entered", at_the_lock)
    flow = client._calls.subscribing.intend(topic, True, PATIENCE)
    next(flow)
    assert at_the_disk.wait(PATIENCE)
    assert over(flow)
    assert client.subscriptions()[topic]["settled"]
