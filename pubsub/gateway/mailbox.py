"""What a subscriber was handed and has not confirmed: rows in the file of its client.

Messages are taken from the service and written here in one commit, and leave when they are confirmed; so the process
may end at any moment, and the same messages are here again, under the same numbers. Each topic of the subscriber has
its own numbers, from 1, which are never used again. `opened` is the last number of the batch that was handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pubsub.client import Batch, Transaction
from pubsub.errors import DataLoss
from pubsub.gateway import losses
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.ids import message_id
from pubsub.gateway.messages import json_facts, preview, text_or_base64
from pubsub.gateway.schemas import Lost, Message

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS gateway_mail ("
    " topic TEXT NOT NULL, number INTEGER NOT NULL, position TEXT NOT NULL, publisher TEXT NOT NULL,"
    " counter INTEGER NOT NULL, stamp INTEGER NOT NULL, key BLOB NOT NULL, body BLOB, note TEXT NOT NULL,"
    " attempts INTEGER NOT NULL, due REAL NOT NULL, letter INTEGER NOT NULL,"
    " headers BLOB NOT NULL DEFAULT x'', doubtful INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (topic, number))",
    "CREATE TABLE IF NOT EXISTS gateway_place ("
    " topic TEXT PRIMARY KEY, last INTEGER NOT NULL, confirmed INTEGER NOT NULL, opened INTEGER NOT NULL"
    ") WITHOUT ROWID",
)

FIELDS: Final = "number, position, publisher, counter, stamp, key, body, note, attempts, due, headers, doubtful"
"""The columns of a `Mail`."""


def make_tables(client: GatewayClient) -> None:
    """Make a mailbox's tables in a client's file, or add the columns that those of an earlier release lack."""
    client.make_tables(TABLES)
    there = client.read("SELECT name FROM pragma_table_info('gateway_mail')")
    for name, kind in (("headers", "BLOB NOT NULL DEFAULT x''"), ("doubtful", "INTEGER NOT NULL DEFAULT 0")):
        if (name,) not in there:
            client.make_tables((f"ALTER TABLE gateway_mail ADD COLUMN {name} {kind}",))


class Mail(NamedTuple):
    """A message that was taken, or word that some are lost.

    Attributes:
        number: its place for this subscriber, from 1.
        position: its place in the topic.
        publisher, counter, stamp, key: as a `Message`'s.
        body: what; None: the messages at `position` are lost, and `note` says why.
        attempts, due: of a webhook: how often it was tried, and when it is to be tried again (seconds since 1970).
        headers: as a batch holds them.
        doubtful: as a `Message`'s, 1 or 0.
    """

    number: int
    position: str
    publisher: str
    counter: int
    stamp: int
    key: bytes
    body: bytes | None
    note: str
    attempts: int
    due: float
    headers: bytes = b""
    doubtful: int = 0

    @property
    def id(self) -> str:
        """What HTTP names it by."""
        return message_id(self.publisher, self.counter) if self.body is not None else f"lost-{self.position}"

    def facts(self, *, beginnings: bool = False, **letter: Any) -> Message | Lost:
        """The message as JSON has it.

        Args:
            beginnings: of a large key and body only those.
            letter: of a dead letter, its further fields.
        """
        if self.body is None:
            return Lost(self.id, self.note, self.position, **letter)
        if beginnings:
            contents = preview(self.key, self.headers, self.body)
        else:
            contents = json_facts(self.key, self.headers) | text_or_base64("body", self.body)
        counter = str(self.counter)  # Above 2 ** 53, where JavaScript's numbers have gaps.
        if self.doubtful:
            contents["doubtful"] = True
        return Message(self.id, self.position, self.publisher, counter, self.stamp, **contents, **letter)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subscriber stands on a topic.

    Attributes:
        last: the number of the newest message that was taken.
        confirmed: up to which number they are confirmed.
        opened: the last number of the batch that was handed out; not above `confirmed`: none is.
    """

    last: int = 0
    confirmed: int = 0
    opened: int = 0


class Mailbox:
    """One subscriber's messages of one topic.

    Args:
        client: the subscriber's.
        topic: of which.
    """

    def __init__(self, client: GatewayClient, topic: str) -> None:
        self.client, self.topic = client, topic

    def place(self) -> Place:
        """Where it stands."""
        rows = self.client.read("SELECT last, confirmed, opened FROM gateway_place WHERE topic = ?", (self.topic,))
        return Place(*rows[0]) if rows else Place()

    def after(self, number: int, most: int, last: int | None = None) -> list[Mail]:
        """Messages behind a number, in order, up to `last`; dead letters are left out."""
        end = 1 << 62 if last is None else last
        rows = self.client.read(
            f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND number > ? AND number <= ? AND letter = 0"  # noqa: S608
            " ORDER BY number LIMIT ?",
            (self.topic, number, end, most),
        )
        return list(map(Mail._make, rows))

    async def take(self, most: int, seconds: float, *, opened: bool = False, confirmed: int = 0) -> int:
        """Take up to `most` messages from the service into the mailbox; how many they were.

        Args:
            most: messages.
            seconds: patience.
            opened: they are a batch that is handed out.
            confirmed: what is confirmed meanwhile, in the same commit.

        Raises:
            As `AsyncClient.get`, but DataLoss, which is taken as a message that says so.
        """

        def sink(batch: Batch, transaction: Transaction) -> None:
            if confirmed:
                _confirm(transaction, self.topic, confirmed)
            rows = [
                (m.id, m.publisher, m.counter, m.stamp, m.key, m.body, "", m.header_bytes, m.doubtful) for m in batch
            ]
            _add(transaction, self.topic, rows, opened=opened)

        try:
            return await self.client.hand_on(self.topic, most, sink, seconds)
        except DataLoss as loss:
            place, reason = f"{loss.first}..{loss.last}", loss.reason
            row = (place, "", 0, 0, b"", None, reason, b"", False)

            def write(transaction: Transaction) -> None:
                _add(transaction, self.topic, [row], opened=opened)
                losses.prune(transaction, self.topic)

            self.client.write(write)
            return 1

    async def confirm(self, number: int) -> None:
        """Forget everything up to a number, durably."""
        await self.client.write_synced(lambda transaction: _confirm(transaction, self.topic, number))

    def empty(self) -> None:
        """Forget everything that is here; numbers go on."""

        def clear(transaction: Transaction) -> None:
            transaction.execute("DELETE FROM gateway_mail WHERE topic = ?", (self.topic,))
            transaction.execute(
                "UPDATE gateway_place SET confirmed = last, opened = last WHERE topic = ?", (self.topic,)
            )

        self.client.write(clear)


def _confirm(transaction: Transaction, topic: str, number: int) -> None:
    transaction.execute("DELETE FROM gateway_mail WHERE topic = ? AND number <= ? AND letter = 0", (topic, number))
    transaction.execute(
        "UPDATE gateway_place SET confirmed = max(confirmed, min(?, last)) WHERE topic = ?", (number, topic)
    )


def _add(transaction: Transaction, topic: str, rows: Sequence[tuple[Any, ...]], *, opened: bool) -> None:
    found = list(transaction.execute("SELECT last FROM gateway_place WHERE topic = ?", (topic,)))
    if not found:
        transaction.execute("INSERT INTO gateway_place VALUES (?, 0, 0, 0)", (topic,))
    before = found[0][0] if found else 0
    last = before + len(rows)
    transaction.executemany(
        "INSERT INTO gateway_mail (topic, number, position, publisher, counter, stamp, key, body, note, headers,"
        " doubtful, attempts, due, letter) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
        [(topic, number, *row) for number, row in enumerate(rows, before + 1)],
    )
    transaction.execute(
        "UPDATE gateway_place SET last = ?, opened = CASE WHEN ? THEN ? ELSE opened END WHERE topic = ?",
        (last, opened, last, topic),
    )
