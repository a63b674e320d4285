"""What a subscriber was never handed: the dead letters of its client, which are ranges of messages that are lost.

The client keeps them in its own table, so that a loss is known for longer than a batch is kept. It would keep them
without end: the newest LOSSES_MAX of a topic stay.
"""

from __future__ import annotations

from typing import Any, Final

from pubsub.client import Transaction
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.limits import DEAD_LETTERS_BYTES_MAX, LOSSES_MAX

_FIELDS: Final = "id, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers"


def count(client: GatewayClient, topic: str) -> int:
    """How many dead letters there are of a topic."""
    return int(client.read("SELECT count(*) FROM pubsub_dead_letters WHERE topic = ?", (topic,))[0][0])


def page(client: GatewayClient, topic: str, after: int, most: int) -> tuple[list[tuple[Any, ...]], int | None]:
    """Dead letters behind a number, as `Mail` has them, and behind which there are more; None: there are none.

    Args:
        client: the subscriber's.
        topic: of which.
        after: the number.
        most: letters; bytes of their bodies end the page earlier.
    """
    sizes = client.read(
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
    rows = client.read(
        f"SELECT {_FIELDS} FROM pubsub_dead_letters LEFT JOIN pubsub_letters_beside USING (id)"  # noqa: S608
        " WHERE topic = ? AND id > ? AND id <= ? ORDER BY id",
        (topic, after, last),
    )
    return list(map(_fields, rows)), last if taken < len(sizes) else None


def _fields(row: tuple[Any, ...]) -> tuple[Any, ...]:
    number, first, last, publisher, counter, stamp, key, body, error, attempts, at, headers = row
    position = f"{first}..{last}" if body is None else first
    return number, position, publisher, counter, stamp, key or b"", body, error, attempts, at, headers or b"", 0


def prune(transaction: Transaction, topic: str) -> None:
    """Forget the oldest where there are more than LOSSES_MAX, but none that the client has still to tell of."""
    oldest = (
        "SELECT id FROM pubsub_dead_letters WHERE topic = ?1 AND id NOT IN (SELECT id FROM pubsub_untold)"
        " ORDER BY id DESC LIMIT -1 OFFSET ?2"
    )
    _forget(transaction, oldest, (topic, LOSSES_MAX))


def forget(transaction: Transaction, topic: str) -> None:
    """Forget all of a topic: whoever subscribes by that name later is another one."""
    transaction.execute("DELETE FROM pubsub_untold WHERE topic = ?", (topic,))
    _forget(transaction, "SELECT id FROM pubsub_dead_letters WHERE topic = ?1", (topic,))


def _forget(transaction: Transaction, which: str, bindings: tuple[Any, ...]) -> None:
    numbers = [(row[0],) for row in transaction.execute(which, bindings)]
    for table in ("pubsub_letters_beside", "pubsub_dead_letters"):
        transaction.executemany(f"DELETE FROM {table} WHERE id = ?", numbers)  # noqa: S608
