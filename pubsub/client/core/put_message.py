"""Build the PUT of one row or of several rows together (docs/explanation/batches.md, *Trains*)."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from pubsub.client.core.chain import Chain, Row
from pubsub.protocol import Put
from pubsub.protocol.train import join_table


def put_message(client: str, publisher: str, chain: Chain, rows: Sequence[Row]) -> Put:
    """Build the message for rows that are sent now; bodies of a train, or on the disk only, are added later.

    Args:
        client, publisher: the client's ID and its store's ID.
        chain: the chain of the rows.
        rows: in order, at least one.
    """
    first = rows[0]
    # Only the oldest row names a log to avoid: a gap before it shows that the log there lacks acknowledged puts. A gap
    # before a later row may only mean that an earlier row was lost on the way.
    oldest = first is chain.rows[0]
    asks = oldest and chain.asks
    # No put has this counter on the topic, so the answer is a gap with the last put. It shows no log as incomplete.
    previous = first.counter - 1 if asks else first.previous
    avoid = chain.avoid if oldest and not asks else ""
    count, checksum, body, train = first.count, first.checksum, first.body or b"", 0
    if len(rows) > 1:
        body, train = join_table(rows), len(rows)
        count, checksum = sum([row.count for row in rows]), crc32(body)
    return Put(
        client, chain.topic, first.counter, publisher, count, previous, checksum, int(first.sole_owner > 0),
        int(len(chain.messages) > 1), train, chain.log, avoid, body,
    )  # fmt: skip
