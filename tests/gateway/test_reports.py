from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pubsub.errors import Unavailable
from pubsub.gateway import reports as module
from pubsub.gateway.reports import Reports


def test_many_that_ask_at_once_ask_the_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def gather() -> dict[str, Any]:
        asked.append(1)
        return {"n": len(asked), "servers": []}

    async def scene() -> None:
        reports = Reports(gather)
        assert await asyncio.gather(*[reports.get() for _ in range(5)]) == [{"n": 1, "servers": []}] * 5
        assert (await reports.get())["n"] == 1
        monkeypatch.setattr(module, "REPORT_SECONDS", -1.0)
        assert (await reports.get())["n"] == 2

    asyncio.run(scene())


def test_what_went_wrong_is_asked_again() -> None:
    answers: list[dict[str, Any]] = [{}]

    def gather() -> dict[str, Any]:
        if len(answers) == 1:
            answers.append({})
            raise Unavailable("status", "any proxy", 1.0)
        return {"fine": True, "servers": []}

    async def scene() -> None:
        reports = Reports(gather)
        assert "any proxy" in await reports.problem()
        assert await reports.problem() == ""
        assert (await reports.get())["fine"] is True

    asyncio.run(scene())
