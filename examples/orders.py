"""An order service: HTTP in, a topic out, and a state that follows payments.

    PUBSUB_PROXIES_FILE=cluster/proxies uvicorn orders:app --http h11 --port 8000
    curl -X PUT -H content-type:application/json -d '{"item": "tea"}' http://127.0.0.1:8000/orders/17

An order and its message are one commit, and so are a payment and the new state of its order. Run one worker process:
the client's directory belongs to one process.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pubsub import AsyncClient, DataLoss, Message, PubsubError, Transaction, Unavailable

TABLE = "create table if not exists orders (number text primary key, item text, state text)"


class Order(BaseModel):
    item: str


async def mark_paid(payment: Message, transaction: Transaction) -> None:
    transaction.execute("update orders set state = 'paid' where number = ?", (payment.key.decode(),))


async def follow_payments(client: AsyncClient) -> None:
    while True:
        try:
            await client.subscribe("payments")
            while True:
                await client.process("payments", mark_paid, timeout=1.0, max=50)
        except (Unavailable, DataLoss) as error:
            logging.warning("%s", error)
        except PubsubError:
            logging.exception("payments are not followed any more")
            raise
        except Exception as error:  # noqa: BLE001 - any error of the handler.
            logging.warning("a payment failed; it comes again: %r", error)
        await asyncio.sleep(1.0)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient("orders") as client:
        with client.transaction() as transaction:
            transaction.execute(TABLE)
        app.state.client = client
        following = asyncio.create_task(follow_payments(client))
        yield
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


app = FastAPI(lifespan=lifespan)


@app.put("/orders/{number}", status_code=202)
async def create(number: str, order: Order) -> dict[str, str]:
    client: AsyncClient = app.state.client
    with client.transaction() as transaction:  # A repeated request finds its order and puts nothing.
        new = list(
            transaction.execute(
                "insert into orders values (?, ?, 'new') on conflict do nothing returning number", (number, order.item)
            )
        )
        if new:
            await client.put("orders", order.item.encode(), key=number.encode(), transaction=transaction)
    await client.flush()  # The order is on the server's disk, too.
    return {"number": number}


@app.get("/orders/{number}")
async def read(number: str) -> dict[str, str]:
    with app.state.client.transaction() as transaction:
        rows = list(transaction.execute("select item, state from orders where number = ?", (number,)))
    if not rows:
        raise HTTPException(404)
    return {"number": number, "item": rows[0][0], "state": rows[0][1]}
