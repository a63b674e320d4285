"""A receiver for tests of faults: `python -m tests.faults.http_receiver DIR PORT JOB_SECONDS`.

Each effect is a row of `effects` with a token of its own, which is also what is answered; so that the answer belongs to
the effect is seen from outside.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from pathlib import Path

from pubsub.client.storage.transaction import Transaction
from pubsub.http import HttpSettings, Receiver, Request
from pubsub.http.serving import listen, make_server
from tests.faults.http_dying import die_where_told

SETTINGS = HttpSettings(backoff_seconds=0.05, backoff_seconds_max=0.5, handler_attempts=10_000, try_seconds=5.0)


def make(directory: Path, job_seconds: float) -> Receiver:
    """The receiver with its handlers."""
    receiver = Receiver(directory, settings=SETTINGS)

    @receiver.prepare
    def prepare(transaction: Transaction) -> None:
        transaction.execute("create table if not exists effects (value text, token text)")

    def effect(request: Request, transaction: Transaction) -> str:
        value = request.body.decode().split()[0]
        token = f"{value}-{secrets.token_hex(8)}"
        transaction.execute("insert into effects values (?, ?)", (value, token))
        if secrets.randbelow(20) == 0:
            raise ValueError("one of the failures of every day")
        return token

    @receiver.job("/job")
    def job(request: Request, transaction: Transaction) -> str:
        time.sleep(job_seconds)  # The work of the job.
        return effect(request, transaction)

    @receiver.message("/message")
    async def message(request: Request, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        effect(request, transaction)

    receiver.put("/put")(effect)
    return receiver


async def main() -> None:
    directory, port, job_seconds = sys.argv[1:]
    die_where_told()
    receiver = make(Path(directory), float(job_seconds))
    await receiver.start()
    server = make_server(receiver, listen(f"127.0.0.1:{port}", insecure=False))
    await server.start()
    print("ready", flush=True)
    await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
