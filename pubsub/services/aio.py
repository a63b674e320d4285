"""`AsyncServiceClient`: calls of services, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from pubsub.services.calling import Body, Reply
from pubsub.services.client_base import ServiceClientBase


class AsyncServiceClient(ServiceClientBase):
    """Calls services from coroutines. Takes the arguments of `ServiceClient` and calls in the same way.

    async with AsyncServiceClient("tcp://127.0.0.1:5555") as client:
        reply = await client.call("echo", b"hello")
    """

    async def call(
        self,
        service: str,
        body: Body,
        *,
        timeout: float | None = None,
        tries: int | None = None,
        on_part: Callable[[bytes], object] | None = None,
    ) -> Reply:
        """Call a service and wait for its reply. To cancel the task withdraws the call.

        Arguments and errors are those of `ServiceClient.call`. `on_part` runs on the event loop's thread.
        """
        loop = asyncio.get_running_loop()
        taken = None if on_part is None else lambda part: loop.call_soon_threadsafe(on_part, part)
        return await asyncio.wrap_future(
            self.submit(service, body, timeout=timeout, tries=tries, on_part=taken), loop=loop
        )

    async def close(self) -> None:
        """Withdraw the calls under way and close the sockets."""
        await asyncio.to_thread(self._calling.close)

    async def __aenter__(self) -> AsyncServiceClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
