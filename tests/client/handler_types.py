"""Handlers as the type checker sees them: it refuses one for asyncio where a plain one is called.

`scripts/test` checks this file with the types. Nothing runs it: an ignored error that is no error any more is one.
"""

from __future__ import annotations

from pubsub import AsyncClient, AsyncHandler, Client, Handler, Message, Transaction


async def later(message: Message, transaction: Transaction) -> None: ...


def now(message: Message, transaction: Transaction) -> None: ...


one: Handler = now
other: AsyncHandler = later


async def main(client: Client, aio: AsyncClient) -> None:
    client.process("t", now)
    await aio.process("t", now)
    await aio.process("t", later)
    client.process("t", later)  # type: ignore[arg-type]
