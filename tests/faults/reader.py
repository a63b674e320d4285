"""A named reader on a thread: it reads ranges of each topic, records its messages, and acknowledges them.

What is read is written to a database of the tables that clients write (`history`), so that the checker judges it too.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from pubsub.client.requests import Proxies
from pubsub.errors import Unavailable
from pubsub.protocol import Outcome, Position, Read
from pubsub.protocol.records import Records
from pubsub.spark.identity import Identity
from pubsub.spark.ranges import Topics
from tests.faults.history import END, TABLES

NAME = "nightly"
RECORDS_MAX = 200


class Reader:
    """Reads until `finish` was called and the end of every topic came; a context manager.

    Args:
        path: of its database.
        proxies: whom it asks; read when it begins.
        topics: which it reads.

    Attributes:
        taken: how many records.
        failed: what ended it, where something did.
    """

    def __init__(self, path: Path, proxies: Sequence[str], topics: Sequence[str]) -> None:
        self._path, self._proxies, self._topics = path, proxies, tuple(topics)
        self.taken = 0
        self.failed: Exception | None = None
        self._ended: set[str] = set()
        self._stopped = threading.Event()
        self._after: dict[str, Position | None] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(120.0)

    @property
    def ended(self) -> bool:
        """Whether it has all of every topic, or failed."""
        return not self._thread.is_alive()

    @property
    def subscribed(self) -> bool:
        """Whether it has a subscription for each topic."""
        return len(self._after) == len(self._topics) or self.failed is not None

    def _run(self) -> None:
        try:
            with (
                closing(sqlite3.connect(self._path, isolation_level=None)) as db,
                Identity(client=NAME).connect(self._proxies, 2.0) as link,
            ):
                for table in TABLES:
                    db.execute(table)
                self._follow(db, link)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is to say so
            self.failed = error

    def _follow(self, db: sqlite3.Connection, link: Proxies) -> None:
        asked = Topics(link, NAME)
        for topic in self._topics:
            began = time.monotonic()
            while not self._stopped.is_set():
                try:
                    self._after[topic] = asked.subscribe(topic, "latest")
                except Unavailable:
                    continue
                break
            row = (topic, 1, began, time.monotonic())
            db.execute("insert into history_intents (topic, wanted, began, settled) values (?,?,?,?)", row)
        while not self._stopped.is_set() and self._ended != set(self._topics):
            for topic in self._topics:
                try:
                    self._round(db, link, asked, topic)
                except Unavailable:
                    continue
            self._stopped.wait(0.02)

    def _round(self, db: sqlite3.Connection, link: Proxies, asked: Topics, topic: str) -> None:
        after = self._after[topic]
        status = link.ask(Read(NAME, topic, after, None, name=NAME, records_max=RECORDS_MAX))
        if status.outcome is Outcome.EMPTY:
            return
        assert status.outcome is Outcome.SUCCESS, f"{topic} behind {after}: {status.outcome} {status.reason}"
        db.execute("begin")
        for body in Records(bytes(status.body)).bodies():
            if body == END:
                self._ended.add(topic)
                continue
            row = (topic, body.decode().rstrip(), time.monotonic())
            db.execute("insert into history_seen (topic, body, at) values (?,?,?)", row)
        db.execute("commit")
        self.taken += status.records
        self._after[topic] = status.message
        assert status.message is not None
        asked.acknowledge(topic, status.message)
