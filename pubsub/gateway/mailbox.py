"""A subscriber's delivered but unconfirmed messages: rows in the file of its client.

One commit takes messages from the service and writes them here. They stay until they are confirmed, so the process may
end at any moment and deliver the same messages again under the same numbers. Each topic of a subscriber counts from 1,
and no number is used twice. `opened` is the last number of the batch that was delivered.

A pattern of topics has one mailbox, and one sequence of numbers for all topics that match. Each row names its topic in
`source`, and a batch has messages of one topic.

The rule is docs/explanation/gateway.md, H5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from pubsub.client import Batch, Transaction
from pubsub.errors import DataLoss
from pubsub.gateway import losses
from pubsub.gateway.client import GatewayClient
from pubsub.gateway.ids import message_id
from pubsub.gateway.messages import json_fields, preview, text_or_base64
from pubsub.gateway.schemas import Lost, Message

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS gateway_mail ("
    " topic TEXT NOT NULL, number INTEGER NOT NULL, position TEXT NOT NULL, publisher TEXT NOT NULL,"
    " counter INTEGER NOT NULL, stamp INTEGER NOT NULL, key BLOB NOT NULL, body BLOB, note TEXT NOT NULL,"
    " attempts INTEGER NOT NULL, due REAL NOT NULL, letter INTEGER NOT NULL,"
    " headers BLOB NOT NULL DEFAULT x'', doubtful INTEGER NOT NULL DEFAULT 0,"
    " replay INTEGER NOT NULL DEFAULT 0, source TEXT NOT NULL DEFAULT '', PRIMARY KEY (topic, number))",
    "CREATE TABLE IF NOT EXISTS gateway_place ("
    " topic TEXT PRIMARY KEY, last INTEGER NOT NULL, confirmed INTEGER NOT NULL, opened INTEGER NOT NULL"
    ") WITHOUT ROWID",
)

FIELDS: Final = (
    "number, position, publisher, counter, stamp, key, body, note, attempts, due, headers, doubtful, replay, source"
)
"""The columns of a `Mail`."""

_ADDED: Final = (
    ("headers", "BLOB NOT NULL DEFAULT x''"),
    ("doubtful", "INTEGER NOT NULL DEFAULT 0"),
    ("replay", "INTEGER NOT NULL DEFAULT 0"),
    ("source", "TEXT NOT NULL DEFAULT ''"),
)
"""Columns that the table of an earlier release lacks."""


def make_tables(client: GatewayClient) -> None:
    """Create a mailbox's tables in a client's file, or add columns that an earlier release lacks."""
    client.make_tables(TABLES)
    there = client.query("SELECT name FROM pragma_table_info('gateway_mail')")
    for name, kind in _ADDED:
        if (name,) not in there:
            client.make_tables((f"ALTER TABLE gateway_mail ADD COLUMN {name} {kind}",))


class Mail(NamedTuple):
    """A message that was taken, or a range of lost messages.

    Attributes:
        number: its number for this subscriber, from 1.
        position: its position in the topic; "": the topic was deleted, and no range of lost messages is known.
        publisher, counter, stamp, key: as of a `Message`.
        body: None: the messages at `position` are lost, and `note` says why.
        attempts, due: of a webhook: failed attempts, and the time of the next one in seconds since 1970.
        headers: in the form of a batch.
        doubtful: as of a `Message`, 1 or 0.
        replay: as of a `Message`.
        source: its topic, if the mailbox is a pattern's; otherwise "".
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
    replay: int = 0
    source: str = ""

    @property
    def id(self) -> str:
        if self.body is None:
            return f"lost-{self.position or self.number}"
        return message_id(self.publisher, self.counter)

    def facts(self, *, beginnings: bool = False, **letter: Any) -> Message | Lost:
        """Return the message as JSON.

        Args:
            beginnings: cut a large key and body.
            letter: further fields of a dead letter.
        """
        if self.source:
            letter["topic"] = self.source
        if self.body is None:
            return Lost(self.id, self.note, self.position or UNSET, **letter)
        if beginnings:
            contents = preview(self.key, self.headers, self.body)
        else:
            contents = json_fields(self.key, self.headers) | text_or_base64("body", self.body)
        counter = str(self.counter)  # JavaScript cannot represent every number above 2 ** 53.
        if self.doubtful:
            contents["doubtful"] = True
        if self.replay:
            contents["replay"] = self.replay
        return Message(self.id, self.position, self.publisher, counter, self.stamp, **contents, **letter)


@dataclass(frozen=True, slots=True)
class Place:
    """A subscriber's progress on a topic.

    Attributes:
        last: number of the newest message taken.
        confirmed: highest confirmed number.
        opened: last number of the batch in delivery; not above `confirmed` if there is none.
    """

    last: int = 0
    confirmed: int = 0
    opened: int = 0


class Mailbox:
    def __init__(self, client: GatewayClient, topic: str) -> None:
        self.client, self.topic = client, topic

    def place(self) -> Place:
        rows = self.client.query("SELECT last, confirmed, opened FROM gateway_place WHERE topic = ?", (self.topic,))
        return Place(*rows[0]) if rows else Place()

    def after(self, number: int, most: int, last: int | None = None) -> list[Mail]:
        """Return messages after a number up to `last`, in order, without dead letters."""
        end = 1 << 62 if last is None else last
        rows = self.client.query(
            f"SELECT {FIELDS} FROM gateway_mail WHERE topic = ? AND number > ? AND number <= ? AND letter = 0"  # noqa: S608
            " ORDER BY number LIMIT ?",
            (self.topic, number, end, most),
        )
        return list(map(Mail._make, rows))

    async def take(self, most: int, seconds: float, *, opened: bool = False, confirmed: int = 0) -> int:
        """Take up to `most` messages from the service into the mailbox, and return their number.

        Args:
            most: limit of messages.
            seconds: longest wait.
            opened: the messages are a batch for delivery.
            confirmed: number to confirm in the same commit.

        Raises:
            As `AsyncClient.get`, except DataLoss, which becomes a row of its own.
        """

        def sink(batch: Batch, transaction: Transaction) -> None:
            if confirmed:
                _confirm(transaction, self.topic, confirmed)
            source = self._source(batch.topic)
            rows = [
                (m.id, m.publisher, m.counter, m.stamp, m.key, m.body, "", m.header_bytes, m.doubtful, m.replay, source)
                for m in batch
            ]
            _add(transaction, self.topic, rows, opened=opened)

        try:
            return await self.client.hand_on(self.topic, most, sink, seconds)
        except DataLoss as loss:
            place, reason = f"{loss.first}..{loss.last}" if loss.first else "", loss.reason
            row = (place, "", 0, 0, b"", None, reason, b"", False, 0, self._source(loss.topic))

            def write(transaction: Transaction) -> None:
                _add(transaction, self.topic, [row], opened=opened)
                losses.prune(transaction, self.topic)

            self.client.write(write)
            return 1

    def _source(self, topic: str) -> str:
        return "" if topic == self.topic else topic

    async def confirm(self, number: int) -> None:
        """Delete everything up to a number, durably."""
        await self.client.write_synced(lambda transaction: _confirm(transaction, self.topic, number))

    def empty(self) -> None:
        """Delete everything here; numbers continue."""
        self.client.write(self.clear)

    def clear(self, transaction: Transaction) -> None:
        """Do the same in a commit."""
        transaction.execute("DELETE FROM gateway_mail WHERE topic = ?", (self.topic,))
        transaction.execute("UPDATE gateway_place SET confirmed = last, opened = last WHERE topic = ?", (self.topic,))


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
        " doubtful, replay, source, attempts, due, letter) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
        [(topic, number, *row) for number, row in enumerate(rows, before + 1)],
    )
    transaction.execute(
        "UPDATE gateway_place SET last = ?, opened = CASE WHEN ? THEN ? ELSE opened END WHERE topic = ?",
        (last, opened, last, topic),
    )
