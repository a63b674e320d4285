"""Losses of a subscriber: dead letters of its client, each a range of lost messages.

The client stores them in its own table, so that a loss is known for longer than a batch is kept. The client itself
would keep them without a limit; here only the newest LOSSES_MAX of a topic stay.
"""

from __future__ import annotations

from typing import Any, Final

from pubsub.client import Transaction
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX, LOSSES_MAX

_FIELDS: Final = "id, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers"


def count(client: GatewayClient, topic: str) -> int:
    return int(client.query("SELECT count(*) FROM pubsub_dead_letters WHERE topic = ?", (topic,))[0][0])


def page(client: GatewayClient, topic: str, after: int, most: int) -> tuple[list[tuple[Any, ...]], int | None]:
    """Return dead letters after a number in the form of `Mail`, and the number to continue after, None at the end.

    Args:
        client: of the subscriber.
        topic: its topic.
        after: the number.
        most: limit of letters; a limit on bytes of bodies may end the page earlier.
    """
    sizes = client.query(
        "SELECT id, length(coalesce(body, '')) FROM pubsub_dead_letters WHERE topic = ? AND id > ? ORDER BY id LIMIT ?",
        (topic, after, most + 1),
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
        " WHERE topic = ? AND id > ? AND id <= ? ORDER BY id",
        (topic, after, last),
    )
    return list(map(_fields, rows)), last if taken < len(sizes) else None


def _fields(row: tuple[Any, ...]) -> tuple[Any, ...]:
    number, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers = row
    position = f"{first}..{last}" if body is None else first
    return number, position, publisher, counter, stamp, key or b"", body, error, attempts, at, headers or b"", 0, 0


def prune(transaction: Transaction, topic: str) -> None:
    """Delete the oldest beyond LOSSES_MAX, except those that the client has yet to report."""
    oldest = (
        "SELECT id FROM pubsub_dead_letters WHERE topic = ?1 AND id NOT IN (SELECT id FROM pubsub_untold)"
        " ORDER BY id DESC LIMIT -1 OFFSET ?2"
    )
    _forget(transaction, oldest, (topic, LOSSES_MAX))


def forget(transaction: Transaction, topic: str) -> None:
    """Delete all of a topic: a later subscriber of the same name is a different one."""
    transaction.execute("DELETE FROM pubsub_untold WHERE topic = ?", (topic,))
    transaction.execute("DELETE FROM pubsub_deletions WHERE topic = ?", (topic,))
    _forget(transaction, "SELECT id FROM pubsub_dead_letters WHERE topic = ?1", (topic,))


def _forget(transaction: Transaction, which: str, bindings: tuple[Any, ...]) -> None:
    numbers = [(row[0],) for row in transaction.execute(which, bindings)]
    for table in ("pubsub_letters_beside", "pubsub_dead_letters"):
        transaction.executemany(f"DELETE FROM {table} WHERE id = ?", numbers)  # noqa: S608
