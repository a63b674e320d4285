"""The PUT of a row, or of several that go together (docs/architecture.md, *Trains*)."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from pubsub.client.core.chain import Chain, Row
from pubsub.protocol import Put
from pubsub.protocol.train import join_table


def put_message(client: str, publisher: str, chain: Chain, rows: Sequence[Row]) -> Put:
    """The message of rows that are sent now; the batches of a train, and one that is not in memory, are put in later.

    Args:
        client, publisher: the client's ID and its store's.
        chain: whose rows they are, which says what is in flight with them.
        rows: in order, at least one.
    """
    first = rows[0]
    # Only the oldest row names what is to be avoided: a gap before it there shows that what was acknowledged is not
    # there any more. Before the others there is a gap whenever one was lost on the way.
    avoid = chain.avoid if first is chain.rows[0] else ""
    count, checksum, body, train = first.count, first.checksum, first.body or b"", 0
    if len(rows) > 1:
        body, train = join_table(rows), len(rows)
        count, checksum = sum([row.count for row in rows]), crc32(body)
    return Put(
        client, chain.topic, first.counter, publisher, count, first.previous, checksum, int(first.whole > 0),
        int(len(chain.messages) > 1), train, chain.log, avoid, body,
    )  # fmt: skip
