"""All that keeps its state in one database: relays, consumers, members of a group, and a publisher, as processes.

Their connections to PostgreSQL go through a link that faults cut or stall. A reader with a file of its own writes down
all messages for the audit.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from pubsub import Client, Message, StorageError, StoreInUse, Transaction, Unavailable
from pubsub.client.outgoing import tables
from tests.faults.cluster import Cluster, Process, until
from tests.postgres.ledger import LEDGER, TOPICS, Row, row_of
from tests.postgres.proxy import Cutting
from tests.postgres.rounds.audit import WAYS
from tests.postgres.server import Postgres

SETTINGS: Final = {"commit_delay": "2000", "commit_siblings": "0"}
"""A pause within each commit, so that more faults meet one."""

TABLES: Final = (
    LEDGER,
    "create table effects (seq bigserial primary key, way text, row text, client text)",
    "create table intents (number bigint)",
)
"""Tables of the application. No constraint prevents a second effect: the audit has to find it."""

OTHERS: Final = ("receipts", "direct", "plain")
MEMBERS: Final = 2
STARTS: Final = 1_000_000
"""Numbers of the publisher for each start of its process."""

TIMEOUT_SECONDS: Final = 10.0
MARKER: Final = 900_000
"""Writer of the rows that show that all go on."""

LAG_MAX: Final = 15
"""Rows without an effect above which writers wait: a consumer commits each message alone."""

LOOK_SECONDS: Final = 0.03
AGAIN_CODES: Final = (StorageError.exit_code, StoreInUse.exit_code)
"""Exit codes after which a supervisor starts a process again."""

ENDS_SECONDS: Final = 180.0


class Reader:
    """Reads all topics on a thread, and writes each message down.

    Attributes:
        received: by topic, the rows of the ledger in the order of their messages.
        counts: by topic, the number of messages.
    """

    def __init__(self, client: Client, file: Path) -> None:
        self._client, self._file = client, file
        self.received: dict[str, list[Row]] = {topic: [] for topic in TOPICS}
        self.counts: Counter[str] = Counter()
        self.failure = ""
        self._stop = threading.Event()
        for topic in (*TOPICS, *OTHERS):
            client.subscribe(topic)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._file.open("w", encoding="ascii") as file:

                def note(messages: list[Message], _: Transaction) -> None:
                    for message in messages:
                        self._note(message, file)
                    file.flush()

                while not self._stop.is_set():
                    with suppress(Unavailable):  # The host is busy: the next call takes them.
                        self._client.process_many([*TOPICS, *OTHERS], note, 0.5)
        except BaseException as error:  # noqa: BLE001 - the test that waits raises it.
            self.failure = f"{type(error).__name__}: {error}"

    def _note(self, message: Message, file: Any) -> None:
        file.write(f"{message.topic}\t{message.body.decode()}\n")
        if message.topic in self.received:
            self.received[message.topic].append(row_of(message.body))
        self.counts[message.topic] += 1

    def check(self) -> None:
        """Fail if the thread has failed."""
        assert not self.failure, self.failure


class Stage:
    """The processes; a context manager.

    Args:
        directory: for all files.
        seed: of what the workers draw.

    Attributes:
        consumers: by name, the workers that consume.
        putter: the worker that publishes.
        relays: two, one of them a spare.
        errors: how often calls of workers raised each error.
        held: set while effects are far behind the ledger, for its writers.
    """

    def __init__(self, directory: Path, seed: int, *, keys: bool = False) -> None:
        self.directory, self._seed = directory, seed
        self._stack = ExitStack()
        self._cluster = Cluster(directory, keys=keys)
        self.consumers: dict[str, Process] = {}
        self.relays: list[Process] = []
        self._starts: Counter[str] = Counter()
        self._finishing = False
        self._asking: psycopg.Connection[Any] | None = None
        self.errors: Counter[str] = Counter()
        self.held = threading.Event()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.postgres = stack.enter_context(Postgres(settings=SETTINGS))
            self.database = self.postgres.create_database()
            with self.postgres.connect(self.database) as connection:
                tables.install(connection)
                for statement in TABLES:
                    connection.execute(statement)
            self.link = stack.enter_context(Cutting(self.postgres))
            self.cluster = stack.enter_context(self._cluster).run(proxies=2, servers=1)
            self.reader = stack.enter_context(Reader(self.cluster.client("reader"), self.directory / "received"))
            self._start_all()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: Any) -> None:
        self._stack.__exit__(*details)

    def _start_all(self) -> None:
        for topic, way in WAYS.items():
            for number in range(MEMBERS if way == "member" else 1):
                name = f"{way}{number + 1}"
                self.consumers[name] = self._worker(name, role=way, topic=topic)
        self.putter = self._worker("putter", role="putter")
        proxies = [word for address in self.cluster.addresses for word in ("--proxy", address)]
        keys = self.cluster.keys
        if keys is not None:
            proxies += [word for key in self.cluster.proxy_keys() for word in ("--proxy-key", key)]
            proxies += ["--key-file", str(keys.client)]
        words = ("--database", self.url, *proxies, "--timeout-seconds", str(TIMEOUT_SECONDS))
        self.relays = [self.cluster.process(f"relay{n}", "-m", "pubsub", "relay", *words).start() for n in (1, 2)]
        for worker in self.consumers.values():
            until(lambda worker=worker: self.supervised(worker).lines("subscribed"), f"{worker.name} has subscribed")

    @property
    def url(self) -> str:
        """The database behind the link."""
        return self.link.url(self.database)

    def _worker(self, name: str, **facts: Any) -> Process:
        made = self.cluster.process(name, "-m", "tests.postgres.rounds.worker", "{}")
        return made.again(
            name=name, directory=self._new_directory(name), proxies=self.cluster.addresses, database=self.url,
            plain_database=self.url, timeout=TIMEOUT_SECONDS, seed=self._seed, first=0,
            keys=self.cluster.key_settings(), **facts,
        )  # fmt: skip

    def _new_directory(self, name: str) -> str:
        self._starts[name] += 1
        return str(self.directory / "pods" / f"{name}.{self._starts[name]}")

    def restart(self, worker: Process, *, lose: bool = False) -> None:
        """Start a worker that has ended.

        Args:
            lose: its directory is lost, and it begins in a new one.
        """
        self.link.release()  # A new process cannot end the backend of the one before.
        facts = json.loads(worker.command[-1])
        changed = {"first": facts["first"] + STARTS}
        if lose:
            shutil.rmtree(facts["directory"], ignore_errors=True)
            changed["directory"] = self._new_directory(worker.name)
        worker.again(**changed)

    def supervised(self, process: Process) -> Process:
        """Start a process again that found no database, or its client still in use; any other end is a failure."""
        code = process.running.poll()
        if code is not None:
            last = f"{process.lines('')[-3:]}, {process.errors.read_text()[-3_000:]}"
            assert code in AGAIN_CODES, f"{process.name} ended with {code}: {last}"
            if process in self.relays:
                process.start()
            else:
                self.restart(process)
        return process

    @property
    def all(self) -> list[Process]:
        """Every process that has its state in the database."""
        return [*self.consumers.values(), self.putter, *self.relays]

    def supervise(self) -> None:
        """Look at all processes, and at the reader."""
        self.reader.check()
        for process in self.all:
            if process is not self.putter or not self._finishing:
                self.supervised(process)

    def active_relay(self) -> Process | None:
        """The relay that has said last that it sends; None if none has by now."""
        self.supervise()
        return next((one for one in self.relays if " sends the rows of " in (one.lines("relay ") or [""])[-1]), None)

    # Waiting

    def ask(self, statement: str, *parameters: Any) -> tuple[Any, ...] | None:
        """Return the first row of an answer of PostgreSQL itself; None if there is none, or PostgreSQL is away."""
        try:
            if self._asking is None or self._asking.closed:
                self._asking = self.postgres.connect(self.database, application_name="rounds")
            return self._asking.execute(statement, parameters or None).fetchone()  # type: ignore[arg-type]
        except psycopg.OperationalError:
            self._asking = None
            return None

    def write_markers(self, number: int) -> None:
        """Write a row on each topic, and the same rows into the ledger, in one transaction."""
        with psycopg.connect(self.postgres.url(self.database), connect_timeout=10) as connection:
            for part, topic in enumerate(TOPICS):
                connection.execute("insert into ledger values (%s, %s, %s, %s)", (MARKER, number, part, topic))
                body = b"%d %d %d" % (MARKER, number, part)
                connection.execute("insert into pubsub.outgoing (topic, body) values (%s, %s)", (topic, body))

    def wait_on(self, number: int) -> None:
        """Wait until new rows have effects, and the publisher has committed again: all go on."""
        until(lambda: self._written(number), "rows are written")
        before = until(lambda: self.ask("select count(*) from intents"), "PostgreSQL answers")[0]
        query = """
            select (select count(*) from effects where row = any(%s)), (select count(*) from intents),
                (select count(*) from ledger) - (select count(*) from effects)
        """
        rows = [f"{MARKER} {number} {part}" for part, _ in enumerate(TOPICS)]

        def on() -> bool:
            self.supervise()
            found = self.ask(query, rows)
            if found is not None and (found[2] > LAG_MAX) != self.held.is_set():
                (self.held.set if found[2] > LAG_MAX else self.held.clear)()
            time.sleep(LOOK_SECONDS)
            return found is not None and found[0] >= len(TOPICS) and found[1] > before

        until(on, "all go on", ENDS_SECONDS)

    def _written(self, number: int) -> bool:
        with suppress(psycopg.OperationalError, psycopg.errors.UniqueViolation):
            self.write_markers(number)
        return self.ask("select 1 from ledger where writer = %s and number = %s", MARKER, number) is not None

    def take_over(self, replica: Postgres) -> None:
        """Stop the primary as by a crash; let a replica take its place, and the link lead to it."""
        self.link.refuses = True
        self.postgres.stop("immediate")
        self.link.cut()
        if not replica.is_running:
            replica.start()
        replica.promote()
        self._asking = None
        self.postgres = self.link.postgres = replica

    # The end

    def finish(self) -> None:
        """Let the publisher end, then wait until all rows have effects and receipts, then let the consumers end."""
        self._end([self.putter])
        self._finishing = True
        query = "select (select count(*) from ledger), (select count(*) from effects), (select count(*) from intents)"

        def through() -> bool:
            self.supervise()
            found = self.ask(query)
            counts = self.reader.counts
            taken = sum([counts[topic] for topic in TOPICS])
            rest = found is not None and found[0] <= min(found[1], taken) and found[1] <= counts["receipts"]
            return bool(rest and found is not None and found[2] <= counts["direct"])

        deadline = time.monotonic() + ENDS_SECONDS
        while not through() and time.monotonic() < deadline:  # The audit says what is missing.
            time.sleep(LOOK_SECONDS)
        self._end(list(self.consumers.values()))
        self._end_relays()
        for file in self.directory.glob("*.out"):
            self.errors.update([line.split()[1] for line in file.read_text().splitlines() if line.startswith("error ")])

    def _end(self, workers: list[Process]) -> None:
        for worker in workers:
            self.supervised(worker).wait_line("opened")
            worker.say("finish")
        for worker in workers:
            assert worker.wait() == 0, f"{worker.name}: {worker.errors.read_text()[-3_000:]}"

    def _end_relays(self) -> None:
        for relay in self.relays:
            relay.running.terminate()
        for relay in self.relays:
            assert relay.wait() == 0, f"{relay.name}: {relay.errors.read_text()[-3_000:]}"
