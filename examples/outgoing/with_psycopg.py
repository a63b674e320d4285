"""Write an order and its message in one transaction, with psycopg.

    pubsub relay --install --database postgresql://app@127.0.0.1/shop
    python examples/outgoing/with_psycopg.py postgresql://app@127.0.0.1/shop 17 pear

Beside it runs `pubsub relay --database …`, which sends the message after the commit, once. An order of a fruit that is
not sold rolls back, and no message is sent.
"""

from __future__ import annotations

import sys

import psycopg

from pubsub import write_rows


def order(url: str, number: int, fruit: str) -> None:
    """Take an order, unless the fruit is not sold."""
    with psycopg.connect(url) as connection:  # Commits at the end of the block, and rolls back after an exception.
        connection.execute("create table if not exists orders (number int primary key, fruit text not null)")
        connection.execute("insert into orders values (%s, %s)", (number, fruit))
        write_rows(connection, "orders", [fruit.encode()], keys=[str(number).encode()])
        if fruit == "durian":
            raise SystemExit("durian is not sold")


if __name__ == "__main__":
    order(sys.argv[1], int(sys.argv[2]), sys.argv[3])
