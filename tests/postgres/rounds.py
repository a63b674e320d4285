"""Rounds of faults on a relay, its spare and their database, while writers write and a subscriber reads.

    kill relay   SIGKILL of the relay that is active, or of any; started again later
    stop relay   SIGSTOP of the active one: its spare cannot take over; SIGCONT later
    terminate    `pg_terminate_backend` of every connection of the relays, or of all
    backend      SIGKILL of a backend of a relay: PostgreSQL ends all connections and recovers
    immediate    PostgreSQL is stopped as by a crash, and started again

After the last round the ledger and the messages must be alike, to the row, and in the order of D7.

    python -m tests.postgres.rounds --rounds 500 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg

from pubsub import Client, StorageError, Unavailable
from pubsub.client.outgoing import tables
from tests.faults.cluster import Cluster, Process, until
from tests.faults.forkserver import forking
from tests.postgres.ledger import LEDGER, TOPICS, Row, Writers, differences, ledger_of, row_of
from tests.postgres.server import Postgres

FAULTS: Final = ("kill relay", "kill relay", "stop relay", "terminate", "backend", "immediate")
WRITERS: Final = 4
SETTINGS: Final = {"commit_delay": "2000", "commit_siblings": "0"}
"""A pause within each commit, so that more faults meet one."""

LAST: Final = 1_000_000
"""Writer of the last rows."""

ENDS_SECONDS: Final = 180.0


class Subscriber:
    """Reads all topics on a thread.

    Attributes:
        received: by topic, the rows in the order of their messages.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.received: dict[str, list[Row]] = {topic: [] for topic in TOPICS}
        self.failure = ""
        self._stop = threading.Event()
        for topic in TOPICS:
            client.subscribe(topic)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Subscriber:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for topic in TOPICS:
                    with suppress(Unavailable):  # The host is busy: the next call takes them.
                        self.received[topic] += [row_of(one.body) for one in self._client.get_many(topic, 1_000, 0.05)]
        except BaseException as error:  # noqa: BLE001 - the test that waits raises it.
            self.failure = f"{type(error).__name__}: {error}"

    def has(self, rows: dict[str, Row]) -> bool:
        """Return whether these rows, one of each topic, were received."""
        assert not self.failure, self.failure
        return all(row in self.received[topic][-1:] for topic, row in rows.items())

    @property
    def count(self) -> int:
        assert not self.failure, self.failure
        return sum(len(rows) for rows in self.received.values())


class Rounds:
    """Faults on a relay and its spare, drawn from a seed.

    Attributes:
        done: how often each fault came.
    """

    def __init__(self, postgres: Postgres, database: str, relays: list[Process], random: Random) -> None:
        self._postgres, self._database, self._relays, self._random = postgres, database, relays, random
        self.done: Counter[str] = Counter()

    def active(self) -> Process | None:
        """The relay that has said last that it sends; None if none has by now."""
        for relay in self._relays:
            if relay.running.poll() == StorageError.exit_code:
                relay.start()  # As a supervisor does: the database was away at its start.
        running = [relay for relay in self._relays if relay.running.poll() is None]
        return next((relay for relay in running if " sends the rows of " in (relay.lines("relay ") or [""])[-1]), None)

    def one(self) -> None:
        """A round: a fault, its end, and traffic until rows are taken again."""
        fault = self._random.choice(FAULTS)
        self.done[fault] += 1
        relay = until(self.active, "a relay is active")
        time.sleep(self._random.random() * 0.1)  # Somewhere in the traffic: never a wait for something.
        if fault == "kill relay":
            victim = relay if self._random.random() < 0.8 else self._random.choice(self._relays)
            victim.kill()
            if self._random.random() < 0.5:
                until(lambda: self.active() not in (None, victim), "the spare takes over")
            victim.start()
        elif fault == "stop relay":
            relay.pause()
            time.sleep(self._random.random() * 0.3)
            relay.resume()
        elif fault == "terminate":
            self._terminate("pubsub client relay%" if self._random.random() < 0.7 else "%")
        elif fault == "backend":
            self._kill_backend()
        else:
            self._postgres.restart("immediate")
        self._wait_taken()

    def _terminate(self, pattern: str) -> None:
        with self._postgres.connect(application_name="rounds") as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and application_name like %s"
                " and pid <> pg_backend_pid()",
                (self._database, pattern),
            )

    def _kill_backend(self) -> None:
        query = "select pid from pg_stat_activity where datname = %s and application_name like 'pubsub client relay%%'"
        with self._postgres.connect() as connection:
            pids = [row[0] for row in connection.execute(query, (self._database,))]
        if pids:
            self._postgres.kill_backend(self._random.choice(pids))
            self._postgres.wait_ready()

    def _wait_taken(self) -> None:
        """Until a row that is written from now on is taken: everybody has got on."""
        marker = f"marker {sum(self.done.values())}".encode()

        def written() -> bool:
            try:
                with self._postgres.connect(self._database) as connection:
                    connection.execute("insert into pubsub.outgoing (topic, body) values ('markers', %s)", (marker,))
                return True
            except psycopg.OperationalError:
                return False

        def taken() -> bool:
            try:
                with self._postgres.connect(self._database) as connection:
                    rest = "select 1 from pubsub.outgoing where topic = 'markers' and body = %s"
                    return connection.execute(rest, (marker,)).fetchone() is None
            except psycopg.OperationalError:
                return False

        until(written, "a row is written")
        until(taken, "the rows are taken again", ENDS_SECONDS)


def run(rounds: int, seed: int, directory: Path, say: Any = lambda text: None) -> list[str]:
    """Run rounds; return what is wrong at the end."""
    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(settings=SETTINGS))
        database = postgres.create_database()
        with postgres.connect(database) as connection:
            tables.install(connection)
            connection.execute(LEDGER)
        cluster = stack.enter_context(Cluster(directory)).run(proxies=1, servers=1)
        subscriber = stack.enter_context(Subscriber(cluster.client("reader")))
        options = ("--database", postgres.url(database), "--proxy", cluster.addresses[0])
        relays = [cluster.process(f"relay{n}", "-m", "pubsub", "relay", *options).start() for n in (1, 2)]
        faults = Rounds(postgres, database, relays, Random(seed))
        with Writers(postgres.url(database), WRITERS, seed) as writers:
            for number in range(1, rounds + 1):
                try:
                    faults.one()
                except BaseException:
                    for relay in relays:
                        say(f"{relay.name}: {relay.lines('')[-2:]}, {relay.running.poll()}")
                        say(relay.errors.read_text()[-3_000:])
                    raise
                if number % 10 == 0 or number == rounds:
                    traffic = f"{writers.committed:,} committed, {subscriber.count:,} received"
                    say(f"round {number}: {traffic}, {dict(faults.done)}")
        with postgres.connect(database) as connection:
            _write_last(connection)
            ledger = ledger_of(connection)
        # Behind the last row of each topic nothing of it is on its way any more.
        ends = {topic: (LAST, 1, part) for part, topic in enumerate(TOPICS)}
        until(lambda: subscriber.has(ends), f"the last of {len(ledger):,} messages", ENDS_SECONDS)
        found = differences(ledger, dict(subscriber.received), writers.spans)
        with postgres.connect(database) as connection:
            refused = connection.execute("select count(*) from pubsub.refused").fetchone()
        if refused != (0,):
            found.append(f"refused rows: {refused}")
        kinds = f"{writers.rolled_back:,} rolled back, {writers.lost} connections lost"
        say(f"{len(ledger):,} rows, {subscriber.count:,} messages, {kinds}; wrong: {len(found)}")
        return found


def _write_last(connection: psycopg.Connection[Any]) -> None:
    """Write a last row of each topic."""
    for part, topic in enumerate(TOPICS):
        connection.execute("insert into ledger values (%s, 1, %s, %s)", (LAST, part, topic))
        body = b"%d 1 %d" % (LAST, part)
        connection.execute("insert into pubsub.outgoing (topic, body) values (%s, %s)", (topic, body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with forking(), tempfile.TemporaryDirectory(dir=given.dir) as directory:
        found = run(given.rounds, given.seed, Path(directory), lambda text: print(text, flush=True))
    for line in found[:50]:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
