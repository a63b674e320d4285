"""The clients of a gateway, on a cluster within this process: which are open, for how long, and how many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pubsub.client.batch_contents import BatchContents
from pubsub.config.settings import ClientSettings
from pubsub.gateway import clients as module
from pubsub.gateway.clients import Clients
from pubsub.gateway.problems import Problem
from pubsub.gateway.publishing import Put
from tests.faults.cluster import Cluster


def run(cluster: Cluster, directory: Path, scene: Callable[[Clients], Awaitable[None]]) -> None:
    async def whole() -> None:
        clients = Clients(ClientSettings(proxies=tuple(cluster.addresses)), directory)
        try:
            await scene(clients)
        finally:
            await clients.close()

    asyncio.run(whole())


def test_a_client_is_opened_once_and_shared_while_it_is_used(cluster: Cluster, tmp_path: Path) -> None:
    async def scene(clients: Clients) -> None:
        async with clients.subscriber("u", "u.s") as first, clients.subscriber("u", "u.s") as second:
            assert first is second
            assert clients.count == 1
        assert clients.count == 1

    run(cluster, tmp_path, scene)


def test_an_unused_client_is_closed_and_opened_again_on_demand(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)

    async def scene(clients: Clients) -> None:
        async with clients.subscriber("u", "u.s") as first:
            clients.sweep()
            assert clients.count == 1
        clients.sweep()
        assert clients.count == 0
        async with clients.subscriber("u", "u.s") as second:  # Waits until the first one is closed.
            assert second is not first

    run(cluster, tmp_path, scene)


def test_the_longest_unused_client_is_closed_at_the_limit(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_CLIENTS_MAX", 2)

    async def scene(clients: Clients) -> None:
        async with clients.subscriber("u", "u.a"), clients.subscriber("u", "u.b"):
            with pytest.raises(Problem):
                async with clients.subscriber("u", "u.c"):
                    pass
        async with clients.subscriber("u", "u.c"):
            assert clients.count == 2

    run(cluster, tmp_path, scene)


def test_a_putting_client_stays_open_until_its_puts_are_done(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)

    async def scene(clients: Clients) -> None:
        publishing = await clients.publishing("u")
        putting = asyncio.create_task(publishing.put("clients", Put(BatchContents([b"x"]), 1)))
        await asyncio.sleep(0)
        clients.sweep()
        assert clients.count == 1
        await putting
        clients.sweep()
        assert clients.count == 0
        again = await clients.publishing("u")
        await again.put("clients", Put(BatchContents([b"y"]), 1))

    run(cluster, tmp_path, scene)


def test_a_gateway_that_starts_opens_the_clients_that_have_put(cluster: Cluster, tmp_path: Path) -> None:
    async def put(clients: Clients) -> None:
        await (await clients.publishing("u")).put("clients", Put(BatchContents([b"x"]), 1))

    async def start(clients: Clients) -> None:
        await clients.start()
        assert clients.count == 1

    run(cluster, tmp_path, put)
    run(cluster, tmp_path, start)
