"""Looks at silent members in a database: a slow database holds up no other call of the client."""

from __future__ import annotations

import logging
import threading

import pytest

from pubsub.client.core.group_looks import LookedUp, Silent
from pubsub.client.settling import ended_by_a_member
from pubsub.embedded import Embedded
from pubsub.errors import Interrupted, StorageError
from tests.client.opened import names
from tests.faults.cluster import until


def test_calls_go_on_while_a_look_waits_for_the_database(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"topic{next(names)}"
    with cluster.client(f"client{next(names)}") as client:
        client.subscribe(topic, group="workers")
        session, asked, answers = client._session, threading.Event(), threading.Event()
        looks: list[str] = []

        def slow(name: str, *_: object) -> LookedUp | None:
            looks.append(name)
            asked.set()
            answers.wait(60)
            return None

        monkeypatch.setattr(session.store, "settle_other", slow)
        (member,) = session.core.all_members()
        with session.entered():
            session.core.silent.append(Silent(member, member.number, "absent", "0" * 16, 1))
            session.turn()
        assert asked.wait(60)
        with session.entered():  # The service asks again meanwhile.
            session.core.silent.append(Silent(member, member.number, "absent", "0" * 16, 1))
            session.turn()
        client.put(topic, b"a")
        message = client.get(topic, timeout=30, group="workers")
        assert message is not None
        caplog.set_level(logging.WARNING)
        answers.set()
        until(lambda: "member absent of group workers is not in the database" in caplog.text, "the look has ended")
    assert looks == ["absent"]


@pytest.mark.parametrize(("ended", "error", "goes_on"), [
    (True, StorageError("p", "r"), True), (True, Interrupted("c"), True),
    (True, ValueError("handler"), False), (False, StorageError("p", "r"), False),
])  # fmt: skip
def test_a_call_goes_on_after_a_look_has_ended_its_life_and_after_nothing_else(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch, ended: bool, error: Exception, goes_on: bool
) -> None:
    with cluster.client(f"client{next(names)}") as client:
        monkeypatch.setattr(client._session.store, "life_ended", ended)
        assert ended_by_a_member(client._session, error) is goes_on
        monkeypatch.undo()
