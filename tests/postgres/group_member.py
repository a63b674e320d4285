"""A member of a group with its state in a database, which dies where the test says: a program of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pubsub.client import Client, Message, Transaction
from pubsub.client.storage.postgres.store import PostgresStore
from pubsub.config import ClientSettings

DIES: bytes = b"3"
"""The message at which the member dies."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(name: str, key_file: str, key: str, proxies: str, database: str, topic: str, where: str) -> None:
    """Work until the message comes at which the member dies: in its handler, or after its commit."""
    handled: list[bytes] = []

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.connection.execute("insert into ledger values (%s, 'first')", (message.body.decode(),))
        handled.append(bytes(message.body))
        if message.body == DIES and where == "handler":
            die()
        if message.body == DIES and where == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)

    if where == "commit":
        end = PostgresStore.end

        def end_and_die(store: Any) -> None:
            end(store)
            if handled[-1:] == [DIES]:
                die()

        PostgresStore.end = end_and_die  # type: ignore[method-assign]
    settings = ClientSettings(proxies=tuple(proxies.split(",")), proxy_keys=(key,), key_file=Path(key_file))
    with Client(name, settings=settings, database=database) as client:
        client.subscribe(topic, group="workers", start="earliest")
        try:
            client.process(topic, handle, group="workers", claim="before", timeout=30.0)
        except Exception as error:  # noqa: BLE001 - the test reads its name.
            print(type(error).__name__, flush=True)
            print(repr(error), file=sys.stderr, flush=True)
        print(handled, file=sys.stderr)
        print("again", flush=True)
        client.process(topic, handle, group="workers", timeout=2.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
