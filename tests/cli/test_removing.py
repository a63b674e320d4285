"""`pubsub server remove`: members that are removed, and members that are not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pubsub.cli import server
from pubsub.errors import NotNow
from pubsub.protocol.messages import Outcome

PRIMARY, OTHER = "a" * 16, "b" * 16


class Served:
    """What an operator hears of server s1, and what it was asked for."""

    def __init__(self, *in_sync: str) -> None:
        self.facts = {"member": PRIMARY, "members": [PRIMARY, OTHER], "in_sync": list(in_sync)}
        self.asked: list[str] = []

    def look(self) -> None:
        return None

    def server_report(self, name: str, view: object) -> dict[str, Any]:
        return {"standby": self.facts}

    def operate(self, name: str, view: object, action: str, *, member: str) -> Any:
        self.asked.append(f"{action} {member}")
        self.facts["members"] = [PRIMARY]
        return SimpleNamespace(outcome=Outcome.BUSY)

    def wait(self, done: Any, *what: str) -> None:
        assert done()

    def remove(self, member: str, monkeypatch: pytest.MonkeyPatch) -> Result:
        @contextlib.contextmanager
        def heard(*_: object) -> Iterator[Served]:
            yield self

        monkeypatch.setattr(server, "cluster", heard)
        words = ["remove", "s1", "--member", member, "--yes", "--proxy", "tcp://127.0.0.1:9"]
        return CliRunner().invoke(server.app, words)


def test_a_refused_removal_of_a_member_in_sync_has_no_later_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served(PRIMARY, OTHER)
    refused = served.remove(OTHER, monkeypatch).exception
    assert isinstance(refused, NotNow)
    assert f"member {OTHER} is in sync" in str(refused)
    assert served.asked == []


def test_a_member_that_is_gone_is_removed_and_a_repeat_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(PRIMARY)
    for _ in range(2):
        done = served.remove(OTHER, monkeypatch)
        assert (done.exit_code, done.stdout) == (0, f"{OTHER} is not a member of s1\n")
    assert served.asked == [f"remove {OTHER}"]
