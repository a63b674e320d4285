"""The rule is docs/explanation/gateway.md, H7."""

from __future__ import annotations

import asyncio

import pytest

from pubsub.gateway import readers as module
from pubsub.gateway.problems import Problem
from pubsub.gateway.readers import Readers

KEY = ("u", "t", "s")


def test_one_reader_at_a_time_reads_a_subscription() -> None:
    async def scene() -> None:
        readers = Readers()
        async with readers.reading(KEY), readers.reading(("u", "t", "other")):
            assert readers.count == 2
            with pytest.raises(Problem) as raised:
                async with readers.reading(KEY):
                    pass
            assert raised.value.status == 409
        async with readers.reading(KEY):
            pass
        assert readers.count == 0

    asyncio.run(scene())


def test_a_reader_that_takes_over_waits_until_the_other_has_gone() -> None:
    async def scene() -> None:
        readers, order = Readers(), []

        async def first() -> None:
            async with readers.reading(KEY) as reader:
                order.append("first")
                await reader.told.wait()
                order.append("told")

        task = asyncio.create_task(first())
        await asyncio.sleep(0)
        async with readers.reading(KEY, take_over=True):
            order.append("second")
        await task
        assert order == ["first", "told", "second"]

    asyncio.run(scene())


def test_a_reader_that_does_not_go_is_not_waited_for_permanently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.01)

    async def scene() -> None:
        readers = Readers()
        async with readers.reading(KEY):
            with pytest.raises(Problem):
                async with readers.reading(KEY, take_over=True):
                    pass
            assert readers.count == 1

    asyncio.run(scene())
