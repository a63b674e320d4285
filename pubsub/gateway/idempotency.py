"""Idempotency keys of puts, in the file of the client that puts (IETF draft 07, Idempotency-Key).

A key is written in the commit of its messages, so neither exists without the other. It is never removed, so a repeat is
always recognised. A key belongs to one user and one topic.

The rule is docs/explanation/gateway.md, H3.
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
"""Counters of messages: first counter and length of each run without a gap."""


def fingerprint(kind: str, body: bytes, key: bytes = b"", headers: bytes = b"") -> bytes:
    """Return a digest of a request, to compare it with a later one that has the same key.

    Args:
        kind: form of its body.
        body: as received.
        key, headers: of its messages, if the request's headers name them.
    """
    if not key and not headers:
        return sha256(kind.encode() + b"\0" + body).digest()
    lengths = len(key).to_bytes(8, "little") + len(headers).to_bytes(8, "little")
    return sha256(b"".join((kind.encode(), b"+\0", lengths, key, headers, body))).digest()


def find(transaction: Transaction, topic: str, key: str, print_: bytes) -> tuple[str, Runs] | None:
    """Return publisher and counters of the earlier put with a key, None if there is none.

    Raises:
        Problem: the key belongs to a different request.
    """
    for found, publisher, counters in transaction.execute(
        "SELECT print, publisher, counters FROM gateway_key WHERE topic = ? AND key = ?", (topic, key)
    ):
        if found != print_:
            raise Problem("key-reused", "This Idempotency-Key belongs to another request on this topic; use a new one.")
        return publisher, [(first, count) for first, count in json.loads(counters)]
    return None


def keep(transaction: Transaction, topic: str, key: str, print_: bytes, publisher: str, runs: Runs) -> None:
    """Store the messages of a key permanently."""
    transaction.execute(
        "INSERT INTO gateway_key VALUES (?, ?, ?, ?, ?)", (topic, key, print_, publisher, json.dumps(runs))
    )
