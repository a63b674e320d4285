"""Losses of a subscriber: dead letters of its client, each a range of lost messages.

The client stores them in its own table, so that a loss is known for longer than a batch is kept. The client itself
would keep them without a limit; here only the newest LOSSES_MAX of a subscriber stay. A subscriber of a pattern has
the losses of all topics that match.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from pubsub.client import Transaction
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX, LOSSES_MAX
from pubsub.protocol.patterns import matches

_FIELDS: Final = "id, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers, topic"
_TOPICS: Final = "SELECT DISTINCT topic FROM pubsub_dead_letters"
_OF: Final = "topic IN (SELECT value FROM json_each(?1))"


def _names(rows: Iterable[tuple[Any, ...]], topic: str) -> str:
    """Return the topics that are one topic or match a pattern, as the JSON list that `_OF` takes."""
    return json.dumps([name for (name,) in rows if matches(topic, name)])


def count(client: GatewayClient, topic: str) -> int:
    names = _names(client.query(_TOPICS), topic)
    return int(client.query(f"SELECT count(*) FROM pubsub_dead_letters WHERE {_OF}", (names,))[0][0])  # noqa: S608


def page(client: GatewayClient, topic: str, after: int, most: int) -> tuple[list[tuple[Any, ...]], int | None]:
    """Return dead letters after a number in the form of `Mail`, and the number to continue after, None at the end.

    Args:
        client: of the subscriber.
        topic: its topic or pattern.
        after: the number.
        most: limit of letters; a limit on bytes of bodies may end the page earlier.
    """
    names = _names(client.query(_TOPICS), topic)
    sizes = client.query(
        f"SELECT id, length(coalesce(body, '')) FROM pubsub_dead_letters WHERE {_OF} AND id > ?2"  # noqa: S608
        " ORDER BY id LIMIT ?3",
        (names, after, most + 1),
    )
    taken, size = 0, 0
    for _, length in sizes[:most]:
        size += length
        if taken and size > DEAD_LETTERS_BYTES_MAX:
            break
        taken += 1
    if not taken:
        return [], None
    last = sizes[taken - 1][0]
    rows = client.query(
        f"SELECT {_FIELDS} FROM pubsub_dead_letters LEFT JOIN pubsub_letters_beside USING (id)"  # noqa: S608
        f" WHERE {_OF} AND id > ?2 AND id <= ?3 ORDER BY id",
        (names, after, last),
    )
    return [_fields(row, topic) for row in rows], last if taken < len(sizes) else None


def _fields(row: tuple[Any, ...], asked: str) -> tuple[Any, ...]:
    number, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers, topic = row
    position, source = f"{first}..{last}" if body is None else first, "" if topic == asked else topic
    mail = number, position, publisher, counter, stamp, key or b"", body, error, attempts, at, headers or b"", 0, 0
    return *mail, source


def prune(transaction: Transaction, topic: str) -> None:
    """Delete the oldest beyond LOSSES_MAX, except those that the client has yet to report."""
    oldest = (
        f"SELECT id FROM pubsub_dead_letters WHERE {_OF} AND id NOT IN (SELECT id FROM pubsub_untold)"  # noqa: S608
        " ORDER BY id DESC LIMIT -1 OFFSET ?2"
    )
    _forget(transaction, oldest, (_names(transaction.execute(_TOPICS), topic), LOSSES_MAX))


def forget(transaction: Transaction, topic: str) -> None:
    """Delete all of a topic: a later subscriber of the same name is a different one."""
    names = _names(transaction.execute(f"{_TOPICS} UNION SELECT topic FROM pubsub_deletions"), topic)  # noqa: S608
    for table in ("pubsub_untold", "pubsub_deletions"):
        transaction.execute(f"DELETE FROM {table} WHERE {_OF}", (names,))  # noqa: S608
    _forget(transaction, f"SELECT id FROM pubsub_dead_letters WHERE {_OF}", (names,))  # noqa: S608


def _forget(transaction: Transaction, which: str, bindings: tuple[Any, ...]) -> None:
    numbers = [(row[0],) for row in transaction.execute(which, bindings)]
    for table in ("pubsub_letters_beside", "pubsub_dead_letters"):
        transaction.executemany(f"DELETE FROM {table} WHERE id = ?", numbers)  # noqa: S608
