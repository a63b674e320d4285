"""Idempotency keys: which put belongs to which, in the file of the client that put (IETF draft 07, Idempotency-Key).

A key's row is written in the commit of its messages, so there is no moment at which one is there without the other; it
is never removed, so that a repeat is recognised for ever. A key belongs to one user and one topic.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final

from pubsub.client import Transaction
from pubsub.gateway.problems import Problem

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS gateway_key ("
    " topic TEXT NOT NULL, key TEXT NOT NULL, print BLOB NOT NULL, publisher TEXT NOT NULL, counters TEXT NOT NULL,"
    " PRIMARY KEY (topic, key)) WITHOUT ROWID",
)

Runs = list[tuple[int, int]]
"""Counters of messages: first and how many, for each run without a gap."""


def fingerprint(kind: str, body: bytes, key: bytes = b"", headers: bytes = b"") -> bytes:
    """What a request is compared by with another one that has its key.

    Args:
        kind: how its body is read.
        body: as it came.
        key, headers: of its messages, where the request's own headers say them.
    """
    if not key and not headers:
        return sha256(kind.encode() + b"\0" + body).digest()
    lengths = len(key).to_bytes(8, "little") + len(headers).to_bytes(8, "little")
    return sha256(b"".join((kind.encode(), b"+\0", lengths, key, headers, body))).digest()


def find(transaction: Transaction, topic: str, key: str, print_: bytes) -> tuple[str, Runs] | None:
    """What was put under a key before: publisher and counters; None: nothing.

    Raises:
        Problem: it was another request's.
    """
    for found, publisher, counters in transaction.execute(
        "SELECT print, publisher, counters FROM gateway_key WHERE topic = ? AND key = ?", (topic, key)
    ):
        if found != print_:
            raise Problem("key-reused", "This Idempotency-Key was used for another request on this topic.")
        return publisher, [(first, count) for first, count in json.loads(counters)]
    return None


def keep(transaction: Transaction, topic: str, key: str, print_: bytes, publisher: str, runs: Runs) -> None:
    """Remember for ever what is put under a key."""
    transaction.execute(
        "INSERT INTO gateway_key VALUES (?, ?, ?, ?, ?)", (topic, key, print_, publisher, json.dumps(runs))
    )
