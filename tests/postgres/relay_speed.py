"""Measure how many rows a second a relay takes, and a server stores: a table filled before, on one topic.

python -m tests.postgres.relay_speed --rows 200000 --bytes 100
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pubsub import embedded
from pubsub.client.outgoing import tables
from tests.faults.cluster import until
from tests.postgres.relays import ThreadedRelay
from tests.postgres.server import Postgres


def measure(rows: int, size: int, directory: Path) -> tuple[float, float, float]:
    """Return the seconds until the table was filled, until it was empty, and until the server had stored all."""
    with Postgres() as postgres, embedded(directory / "cluster") as cluster:
        database = postgres.create_database()
        with postgres.connect(database) as connection:
            tables.install(connection)
            began = time.monotonic()
            fill = (
                "insert into pubsub.outgoing (topic, body)"
                " select 'orders', convert_to(repeat('x', %s), 'UTF8') from generate_series(1, %s)"
            )
            connection.execute(fill, (size, rows))
            filled = time.monotonic()
            relay = ThreadedRelay(cluster, postgres.url(database), directory)
            started = time.monotonic()
            with relay:
                relay.wait(active=True)
                working = relay.running._relay  # A snapshot would count the rows, which takes time of its own.
                assert working is not None
                until(lambda: working.taken >= rows, "the table is empty", 600)
                taken = time.monotonic()
                until(lambda: working.sent >= rows, "all are stored", 600)
                sent = time.monotonic()
    return filled - began, taken - started, sent - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--bytes", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        filled, taken, sent = measure(given.rows, given.bytes, Path(directory))
    print(
        f"{given.rows:,} rows of {given.bytes} B: inserted by one statement in {filled:.1f} s;"
        f" taken {given.rows / taken:,.0f} rows/s, stored by the server {given.rows / sent:,.0f} messages/s"
    )


if __name__ == "__main__":
    main()
