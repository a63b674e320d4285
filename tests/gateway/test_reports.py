from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pubsub.errors import Unavailable
from pubsub.gateway import reports as module
from pubsub.gateway.reports import Reports

TOPIC = {"topic": "t", "records": 0, "bytes": 0, "backlog": 0, "oldest_unacknowledged_seconds": None}
TOPIC |= {"subscribers": {}, "unknown_seconds": None}


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)


def test_many_that_ask_at_once_ask_the_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(monkeypatch), list[int]()

    def gather() -> dict[str, Any]:
        asked.append(1)
        return {"n": len(asked), "servers": [], "topics": []}

    async def scene() -> None:
        reports = Reports(gather)
        assert [one["n"] for one in await asyncio.gather(*[reports.get() for _ in range(5)])] == [1] * 5
        clock.now += 0.9
        assert (await reports.get())["n"] == 1
        clock.now += 0.2
        assert (await reports.get())["n"] == 2

    asyncio.run(scene())


def test_a_failed_report_is_requested_again() -> None:
    answers: list[dict[str, Any]] = [{}]

    def gather() -> dict[str, Any]:
        if len(answers) == 1:
            answers.append({})
            raise Unavailable("status", "any proxy", 1.0)
        return {"fine": True, "servers": [], "topics": []}

    async def scene() -> None:
        reports = Reports(gather)
        assert "any proxy" in await reports.problem()
        assert await reports.problem() == ""
        assert (await reports.get())["fine"] is True

    asyncio.run(scene())


def test_a_report_of_many_topics_is_requested_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(monkeypatch), list[int]()

    def gather() -> dict[str, Any]:
        asked.append(1)
        return {"servers": [], "topics": [TOPIC] * 10_000}

    async def scene() -> None:
        reports = Reports(gather)
        for now, count in ((100.0, 1), (103.9, 1), (104.0, 2), (107.9, 2), (108.1, 3)):
            clock.now = now
            await reports.get()
            assert len(asked) == count

    asyncio.run(scene())
