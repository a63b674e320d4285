"""Show handlers to the type checker, which must refuse one for asyncio where a plain one is needed.

`scripts/test` checks this file with the types, and nothing runs it. An ignored error that is no longer an error fails.
"""

from __future__ import annotations

from pubsub import AsyncClient, AsyncHandler, Client, Handler, Message, Transaction


async def later(message: Message, transaction: Transaction) -> None: ...


def now(message: Message, transaction: Transaction) -> None: ...


def many(messages: list[Message], transaction: Transaction) -> None: ...


async def many_later(messages: list[Message], transaction: Transaction) -> None: ...


one: Handler = now
other: AsyncHandler = later


async def main(client: Client, aio: AsyncClient) -> None:
    client.process("t", now)
    await aio.process("t", now)
    await aio.process("t", later)
    client.process("t", later)  # type: ignore[arg-type]
    client.process_many("t", many)
    await aio.process_many("t", many)
    await aio.process_many("t", many_later)
    client.process_many("t", many_later)  # type: ignore[arg-type]
    client.process_many("t", now)  # type: ignore[arg-type]
