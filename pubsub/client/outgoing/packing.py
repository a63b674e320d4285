"""Pack outgoing rows into batches: each topic's rows in the order of their numbers.

Rows of one transaction keep their order. Of two transactions, the one that began after the other's end comes later.
The rows of transactions at the same time may interleave, since the database gives no order to them.

The rule is docs/explanation/outgoing.md, OR5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import DELAY_SECONDS_MAX
from pubsub.client.arguments import check_headers
from pubsub.client.batch_contents import BatchContents, split
from pubsub.client.outgoing.limits import OUTGOING_BYTES_MAX
from pubsub.errors import CallerError, TooLarge
from pubsub.protocol import check_new_topic
from pubsub.protocol.time_to_live import TTL, ttl_value

_HEX: Final = "hex"


class OutgoingRow(NamedTuple):
    """One outgoing row, as the relay's statement returns it.

    Attributes:
        id: its number.
        headers: JSON text; None: none.
        due: the time of delivery, microseconds since 1970; None: at once.
        ttl: seconds; None: none.
    """

    id: int
    topic: str
    key: bytes
    headers: str | None
    body: bytes
    due: int | None
    ttl: float | None


class Packed(NamedTuple):
    """Rows that were packed.

    Attributes:
        batches: topic and contents of each batch, each topic's in order.
        refused: number and reason of each row that cannot be a message.
    """

    batches: list[tuple[str, list[BatchContents]]]
    refused: list[tuple[int, str]]


def decoded_headers(text: str) -> dict[str, bytes]:
    """Return the headers of a row's JSON.

    Raises:
        CallerError: it is no object of texts and `{"hex": …}`.
    """
    try:
        found = json.loads(text)
        return {name: _value(value) for name, value in found.items()}
    except (ValueError, AttributeError):
        raise CallerError('headers are an object whose values are texts, or {"hex": "00ff"} for bytes') from None


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value.keys() == {_HEX} and isinstance(value[_HEX], str):
        return bytes.fromhex(value[_HEX])
    raise ValueError


def encoded_headers(headers: Mapping[str, bytes]) -> str:
    """Return headers as JSON for a row: a text where the bytes are one that PostgreSQL stores, otherwise hex digits."""
    return json.dumps({name: _text(bytes(value)) for name, value in headers.items()}, ensure_ascii=False)


def _text(value: bytes) -> str | dict[str, str]:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {_HEX: value.hex()}
    return {_HEX: value.hex()} if "\0" in text else text


def pack(rows: Iterable[OutgoingRow], wall: float) -> Packed:
    """Pack rows into batches.

    Args:
        rows: in any order.
        wall: the present time, seconds since 1970. A later due time than is allowed from now on becomes the latest
            allowed one: the database's clock decided that the row is allowed.
    """
    latest = int((wall + DELAY_SECONDS_MAX) * MICROSECONDS)
    topics: dict[str, list[_Run]] = {}
    refused: list[tuple[int, str]] = []
    for row in sorted(rows, key=lambda row: row.id):
        runs = topics.get(row.topic)
        try:
            if runs is None:
                check_new_topic(row.topic)
            block = b"" if row.headers is None and row.ttl is None else _block(row)
            if len(row.body) + len(row.key) > OUTGOING_BYTES_MAX:
                raise TooLarge("body and key", len(row.body) + len(row.key), OUTGOING_BYTES_MAX, "OUTGOING_BYTES_MAX")
        except CallerError as error:
            refused.append((row.id, str(error)))
            continue
        due = 0 if row.due is None else min(max(row.due, 1), latest)
        if runs is None:
            runs = topics[row.topic] = []
        if not runs or runs[-1].due != due:
            runs.append(_Run(due, [], [], []))
        run = runs[-1]
        run.bodies.append(row.body)
        run.keys.append(row.key)
        run.blocks.append(block)
    batches = [(topic, [one for run in runs for one in split(run.contents())]) for topic, runs in topics.items()]
    return Packed(batches, refused)


class _Run(NamedTuple):
    """Successive rows of a topic with one due time."""

    due: int
    bodies: list[bytes]
    keys: list[bytes]
    blocks: list[bytes]

    def contents(self) -> BatchContents:
        keys: Sequence[bytes] = self.keys if any(self.keys) else ()
        blocks: Sequence[bytes] = self.blocks if any(self.blocks) else ()
        return BatchContents(self.bodies, keys, blocks, self.due)


def _block(row: OutgoingRow) -> bytes:
    headers = {} if row.headers is None else decoded_headers(row.headers)
    if row.ttl is not None:
        try:
            headers[TTL] = ttl_value(row.ttl)
        except ValueError as error:
            raise CallerError(f"ttl {error}") from None
    return check_headers(headers)
