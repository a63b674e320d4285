"""A subscriber that seeks at random, and may be killed at any moment: `python -m tests.faults.seeker JSON`.

It writes down each message with the number of its replay, in the commit that takes the message. Before each seek it
writes down which replay would begin where. When it is told to finish, it seeks to the oldest message and takes all up
to the body `end`; then it says `ended`.

Facts: name, directory, proxies, topics: one; seed; die: see `dying`; forgetful: its store keeps the counters at a seek,
which breaks it.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pubsub import Client
from pubsub.client.core.cursor import Cursor
from pubsub.client.core.message import Message
from pubsub.client.storage import applying
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.dying import die_at
from tests.faults.orders import Orders

TABLES = (
    "create table if not exists taken (n integer primary key, replay, number, stamp, id)",
    "create table if not exists wishes (replay integer primary key, kind, value)",
)


class Seeker:
    """Takes one topic, and seeks."""

    def __init__(self, client: Client, topic: str, seed: object) -> None:
        self.client, self.topic = client, topic
        with client.transaction() as transaction:
            for table in TABLES:
                transaction.execute(table)
            (self.count,) = next(transaction.execute("select count(*) from taken"))
        self.rng = Random(f"{seed} {self.count} {self.replay}")
        self.last = b""

    @property
    def replay(self) -> int:
        """Number of the present replay, as the store has it."""
        sub = self.client._session.core.subscriptions.get(self.topic)
        return 0 if sub is None else sub.intent.replay

    def record(self, message: Message, transaction: Any) -> None:
        """The handler."""
        row = message.replay, int(message.body.split()[0]), message.stamp, message.id
        transaction.execute("insert into taken (replay, number, stamp, id) values (?, ?, ?, ?)", row)
        self.last = message.body

    def take(self, most: int) -> None:
        with suppress(Unavailable):
            self.count += self.client.process(self.topic, self.record, 0.05, most)

    def begin(self) -> None:
        while True:
            with suppress(Unavailable):
                self.client.subscribe(self.topic, start="earliest")
                return

    def seek(self, kind: str, value: Any = None) -> None:
        """Until it is so, or another seek is wished."""
        with self.client.transaction() as transaction:
            transaction.execute("insert or replace into wishes values (?, ?, ?)", (self.replay + 1, kind, value))
        start: Any = {"position": value, "last": f"last:{value}"}.get(kind, kind)
        if kind == "time":
            start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        with suppress(Unavailable):
            print("sought", self.client.seek(self.topic, start, timeout=0.5), flush=True)

    def seek_somewhere(self) -> None:
        with self.client.transaction() as transaction:
            rows = list(transaction.execute("select stamp, id from taken order by random() limit 1"))
        kinds = ["earliest", "latest", "last", *(["position", "time"] if rows else [])]
        kind = self.rng.choice(kinds)
        value = {"last": self.rng.randint(1, 200), **({"time": rows[0][0], "position": rows[0][1]} if rows else {})}
        self.seek(kind, value.get(kind))


def main(facts: dict[str, Any]) -> None:
    orders = Orders(facts)
    if "die" in facts:
        die_at(**facts["die"])
    if facts.get("forgetful"):
        keep_counters()
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=Path(facts["directory"]), timeout_seconds=5.0, try_seconds=0.1
    )
    (topic,) = facts["topics"]
    with Client(facts["name"], settings=settings) as client, orders.finished():
        seeker = Seeker(client, topic, facts.get("seed", 0))
        seeker.begin()
        print("subscribed", flush=True)
        while not orders.finishing.is_set():
            seeker.take(seeker.rng.randint(1, 300))
            if seeker.rng.random() < 0.4:
                seeker.seek_somewhere()
            print("took", seeker.count, flush=True)
        wanted = seeker.replay
        while seeker.replay == wanted or not client.subscriptions()[topic]["settled"]:
            seeker.seek("earliest")
        seeker.last = b""
        print("finishing", flush=True)
        while not seeker.last.endswith(b"end"):
            seeker.take(1000)
    print("ended", seeker.count, flush=True)


def keep_counters() -> None:
    """Break rule Z1: a seek leaves the counters."""
    intend = applying.APPLY[applying.c.Intended]

    def with_counters(change: Any) -> Any:
        return [one for one in intend(change) if not one[0].startswith("delete from pubsub_taken")]

    applying.APPLY[applying.c.Intended] = with_counters
    Cursor.forget_taken = lambda self: None  # type: ignore[method-assign]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
