"""Measure how long a spare relay takes to take over: from SIGKILL of the active one until a new row is received.

python -m tests.postgres.takeover_speed --kills 10
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from pubsub.client.outgoing import tables
from tests.faults.cluster import Cluster, Process, until
from tests.faults.forkserver import forking
from tests.postgres.server import Postgres

INSERT = "insert into pubsub.outgoing (topic, body) values ('orders', %s)"


def measure(kills: int, directory: Path) -> tuple[list[float], list[float]]:
    """Return the seconds until the spare is active, and until a row from before the kill was received."""
    actives, rows = [], []
    with Postgres() as postgres, Cluster(directory) as cluster:
        database = postgres.create_database()
        cluster.run(proxies=1, servers=1)
        with postgres.connect(database) as connection:
            tables.install(connection)
            options = ("--database", postgres.url(database), "--proxy", cluster.addresses[0])
            relays = [cluster.process(f"relay{n}", "-m", "pubsub", "relay", *options).start() for n in (1, 2)]
            reader = cluster.client("reader")
            reader.subscribe("orders")
            for kill in range(kills):
                until(lambda: all(relay.lines("relay ") for relay in relays), "both have begun")
                active = next(relay for relay in relays if _sends(relay))
                spare = next(relay for relay in relays if relay is not active)
                active.kill()
                began = time.monotonic()
                connection.execute(INSERT, (b"%d" % kill,))
                until(lambda spare=spare: _sends(spare), "the spare is active")
                actives.append(time.monotonic() - began)
                message = reader.get("orders", timeout=60)
                assert message is not None
                rows.append(time.monotonic() - began)
                active.start()
    return actives, rows


def _sends(relay: Process) -> bool:
    return " sends the rows of " in (relay.lines("relay ") or [""])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    with forking(), tempfile.TemporaryDirectory() as directory:
        actives, rows = measure(given.kills, Path(directory))
        for what, seconds in (("the spare is active", actives), ("a row is received", rows)):
            print(f"{what}: {median(seconds):.2f} s ({min(seconds):.2f} … {max(seconds):.2f})")


if __name__ == "__main__":
    main()
