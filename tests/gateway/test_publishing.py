"""Puts of one user: the ones that share a commit, and the effects of one put on the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pubsub.client.batch_contents import BatchContents
from pubsub.config.settings import ClientSettings
from pubsub.errors import InvalidName
from pubsub.gateway import idempotency
from pubsub.gateway import publishing as module
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.problems import Problem
from pubsub.gateway.publishing import Publishing, Put, Written
from tests.faults.cluster import Cluster


def run(cluster: Cluster, directory: Path, scene: Callable[[Publishing], Awaitable[None]]) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Publishing]:
        settings = ClientSettings(proxies=tuple(cluster.addresses), directory=directory)
        async with GatewayClient("p", settings=settings) as client:
            client.make_tables(idempotency.TABLES)
            yield Publishing(client, 30.0)

    async def whole() -> None:
        async with opened() as publishing:
            await scene(publishing)

    asyncio.run(whole())


def keyed(key: str, body: bytes = b"x") -> Put:
    return Put(BatchContents([body]), len(body), key, body)


async def all_of(publishing: Publishing, puts: list[Put]) -> list[Any]:
    return await asyncio.gather(*[publishing.put("lane", put) for put in puts], return_exceptions=True)


def test_concurrent_puts_share_commits(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = []
    original = GatewayClient.put_rows

    async def counted(self: GatewayClient, topic: str, contents: BatchContents, timeout: float) -> Any:
        commits.append(len(contents.bodies))
        return await original(self, topic, contents, timeout)

    monkeypatch.setattr(GatewayClient, "put_rows", counted)

    async def scene(publishing: Publishing) -> None:
        found = await all_of(publishing, [Put(BatchContents([b"x"]), 1) for _ in range(64)])
        assert len({one.runs[0] for one in found}) == 64

    run(cluster, tmp_path, scene)
    assert sum(commits) == 64
    assert len(commits) <= 4


def test_a_group_has_its_own_limits(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES_MAX", 10)

    async def scene(publishing: Publishing) -> None:
        bodies = (b"x" * 20, b"y" * 6, b"z" * 6)
        found = await all_of(publishing, [Put(BatchContents([body]), len(body)) for body in bodies])
        assert all(isinstance(one, Written) for one in found)

    run(cluster, tmp_path, scene)


def test_one_key_in_one_group_puts_once(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(publishing: Publishing) -> None:
        found = await all_of(publishing, [keyed("k"), Put(BatchContents([b"x"]), 1), keyed("k"), keyed("k", b"other")])
        assert found[0].runs == found[2].runs
        assert [one.replayed for one in found[:3]] == [False, False, True]
        assert found[1].runs != found[0].runs
        assert isinstance(found[3], Problem)
        assert found[3].status == 422

    run(cluster, tmp_path, scene)


def test_an_impossible_put_fails_alone(cluster: Cluster, tmp_path: Path) -> None:
    large = b"x" * (16 << 20)

    async def scene(publishing: Publishing) -> None:
        found = await all_of(
            publishing, [Put(BatchContents([b"x"]), 1), Put(BatchContents([large]), len(large)), keyed("fine")]
        )
        assert [type(one) for one in found] == [Written, Problem, Written]
        assert found[1].status == 413
        with pytest.raises(InvalidName):
            await publishing.put("_no", Put(BatchContents([b"x"]), 1))
        with pytest.raises(InvalidName):
            await publishing.put("_no", keyed("k"))

    run(cluster, tmp_path, scene)


def test_a_cancelled_put_does_not_cancel_others(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(publishing: Publishing) -> None:
        tasks = [asyncio.create_task(publishing.put("lane", Put(BatchContents([b"%d" % n]), 1))) for n in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, Written) for one in found[1::2])

    run(cluster, tmp_path, scene)


def test_the_number_of_topics_at_the_same_time_is_bounded(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LANES_MAX", 1)

    async def scene(publishing: Publishing) -> None:
        first = asyncio.create_task(publishing.put("one", Put(BatchContents([b"x"]), 1)))
        await asyncio.sleep(0)
        with pytest.raises(Problem):
            await publishing.put("two", Put(BatchContents([b"x"]), 1))
        await first
        while not publishing.idle:
            await asyncio.sleep(0)
        await publishing.put("two", Put(BatchContents([b"x"]), 1))

    run(cluster, tmp_path, scene)
