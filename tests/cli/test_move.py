"""`pubsub topic move` while the servers that it speaks of are replaced by their standbys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pubsub.cli import operating
from pubsub.cli.operating import Operator, View
from pubsub.cli.topic import move_topic
from pubsub.client.requests import Proxies
from pubsub.config.settings import ClientSettings
from pubsub.errors import NotNow, ServerSilent
from pubsub.protocol.messages import Outcome, Status

PROXY = "tcp://127.0.0.1:1"
OLD, NEW = "tcp://127.0.0.1:21", "tcp://127.0.0.1:22"


class Scripted(Operator):
    """Looks that see, one after the other, where s2 is heard, "" for nowhere, or that it holds the topic (None)."""

    def __init__(self, proxies: Proxies, seen: list[str | None], answers: list[Outcome]) -> None:
        super().__init__(proxies, 1.0, 30.0)
        self.seen, self.answers = seen, answers
        self.asked: list[str] = []

    def look(self, topic: str = "") -> View:
        where = self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]
        servers = [
            {"id": "s1", "store": "1" * 16, "alive": True, "address": "tcp://127.0.0.1:11"},
            {"id": "s2", "store": "2" * 16, "alive": where != "", "address": where or OLD},
        ]
        held = {"server": "s1", "store": "1" * 16, "log": "a" * 16, "alive": True}
        if where is None:
            held = {"server": "s2", "store": "2" * 16, "log": "a" * 16, "alive": True}
        return View({PROXY: {"servers": servers, "topics": [{"topic": "t", "holders": [held]}]}})

    def operate(self, target: str, view: View, action: str, **facts: Any) -> Status:
        self.asked.append(facts["address"])
        return Status(target, self.answers.pop(0), reason=OLD)


@pytest.fixture
def proxies(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxies]:
    monkeypatch.setattr(operating, "REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(operating, "POLL_SECONDS", 0.0)
    with Proxies.of(ClientSettings(proxies=(PROXY,))) as proxies:
        yield proxies


def test_a_replaced_receiver_is_looked_up_again(proxies: Proxies) -> None:
    found = Scripted(proxies, [OLD, OLD, OLD, NEW, NEW, None], [Outcome.SUCCESS, Outcome.MOVED, Outcome.MOVED])
    move_topic(found, found.look("t"), "t", "s1", "s2")
    assert found.asked[0] == OLD
    assert NEW in found.asked


def test_a_receiver_that_is_silent_for_a_while_is_waited_for(proxies: Proxies) -> None:
    found = Scripted(proxies, [OLD, OLD, OLD, "", "", "", None], [Outcome.SUCCESS])
    move_topic(found, found.look("t"), "t", "s1", "s2")
    assert found.asked == [OLD]


def test_a_move_of_a_moving_topic_or_to_a_silent_server_is_refused(proxies: Proxies) -> None:
    found = Scripted(proxies, [NEW], [Outcome.MOVED])
    with pytest.raises(NotNow, match=r"already moving to tcp://127\.0\.0\.1:21"):
        move_topic(found, found.look("t"), "t", "s1", "s2")
    found = Scripted(proxies, [""], [])
    with pytest.raises(ServerSilent):
        move_topic(found, found.look("t"), "t", "s1", "s2")
