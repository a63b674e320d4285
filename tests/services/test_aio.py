"""Calls by coroutines."""

from __future__ import annotations

import asyncio

import pytest

from pubsub.errors import CallerError
from pubsub.services.aio import AsyncServiceClient
from pubsub.services.errors import CallTimeout
from pubsub.services.worker import Worker
from tests.services.running import Running, address


@pytest.fixture
def server():
    with Running() as running:
        yield running.worker(Worker(bind="tcp://127.0.0.1:0", handler=lambda request: request.body.upper())).address


def test_each_of_many_concurrent_calls_gets_its_reply(server):
    async def main() -> list[bytes]:
        async with AsyncServiceClient(server, kind="lazy", timeout=30.0) as client:
            replies = await asyncio.gather(*(client.call("", b"a%d" % number) for number in range(200)))
            return [reply.body for reply in replies]

    assert asyncio.run(main()) == [b"A%d" % number for number in range(200)]


def test_a_cancelled_task_cancels_its_call():
    async def main() -> None:
        async with AsyncServiceClient(address(), kind="lazy", timeout=60.0) as client:
            task = asyncio.create_task(client.call("", b"x"))
            while not client._calling._calls:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client._calling._calls == {}

    asyncio.run(main())


def test_a_deadline_of_asyncio_cancels_its_call():
    async def main() -> None:
        async with AsyncServiceClient(address(), kind="lazy", timeout=60.0) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.call("", b"x")
            assert client._calling._calls == {}

    asyncio.run(main())


def test_a_call_without_an_answer_raises_an_error():
    async def main() -> None:
        async with AsyncServiceClient(address(), kind="lazy", timeout=0.05, tries=1) as client:
            with pytest.raises(CallTimeout):
                await client.call("", b"x")

    asyncio.run(main())


def test_a_closed_client_raises_an_error(server):
    async def main() -> None:
        client = AsyncServiceClient(server, kind="lazy")
        assert (await client.call("", b"x")).body == b"X"
        await client.close()
        await client.close()
        with pytest.raises(CallerError, match="closed"):
            await client.call("", b"x")

    asyncio.run(main())


def test_an_async_client_outlives_an_event_loop(server):
    client = AsyncServiceClient(server, kind="lazy")
    assert asyncio.run(client.call("", b"a")).body == b"A"
    assert asyncio.run(client.call("", b"b")).body == b"B"
    asyncio.run(client.close())
