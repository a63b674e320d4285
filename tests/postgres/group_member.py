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
from pubsub.errors import StorageError

DIES: bytes = b"3"
"""The message at which the member dies."""

IDLE_CALLS = 5
"""Calls in a row without a message after which the member ends."""


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
        end = PostgresStore.end_beside

        def end_and_die(store: PostgresStore, *arguments: Any) -> None:
            end(store, *arguments)
            if handled[-1:] == [DIES]:
                die()

        PostgresStore.end_beside = end_and_die  # type: ignore[method-assign]
    settings = ClientSettings(proxies=tuple(proxies.split(",")), proxy_keys=(key,), key_file=Path(key_file))
    with Client(name, settings=settings, database=database) as client:
        client.subscribe(topic, group="workers", start="earliest")
        idle = 0
        while idle < IDLE_CALLS:
            try:
                taken = client.process(topic, handle, group="workers", claim="before", timeout=1.0)
            except StorageError as error:
                print(type(error).__name__, flush=True)
            else:
                idle = 0 if taken else idle + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
