"""Flipped bits: a stored batch of a server differs from the written one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from zlib import crc32

import apsw

from pubsub.base.limits import OFFSET_BITS
from pubsub.protocol.batch import decode_batch
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from tests.simulation.disk import NAME
from tests.simulation.nodes import ServerNode


def flip(node: ServerNode, random: Random) -> tuple[str, list[str]] | None:
    """Flip a bit in a record of a stopped server's file.

    Returns:
        The topic and the bodies of the batch; None where nothing is stored that could be damaged.
    """
    disk = node.host.disk
    if disk.full or disk.full_in is not None or disk.refusals or f"/{node.name}/{FILE}" not in disk.files:
        return None
    with contextlib.closing(Store(Path(f"/{node.name}"), vfs=NAME)) as store:
        store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # Otherwise the valid pages are in the log.
        rows = store.db.execute(
            "select topic.name, body, checksum from batch join log on log.id = batch.key >> ?"
            " join topic on topic.id = topic where body is not null and log.state = 'held'",
            (OFFSET_BITS,),
        ).fetchall()
    file = node.host.disk.files.get(f"/{node.name}/{FILE}")
    random.shuffle(rows)
    for topic, body, checksum in rows[:20]:
        # A damaged batch may look like another one, whose bytes are complete elsewhere in the file. A second copy of
        # the bytes may be an unused one.
        if file is not None and crc32(body) == checksum and file.data.count(body) == 1:
            file.data[file.data.find(body) + len(body) - 1] ^= 1
            return topic, [one.decode() for one in decode_batch(body)]
    return None
