"""Limits of the shipped code, so small for the length of a run that it reaches them; and chance from its seed alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from io import StringIO
from random import Random
from unittest import mock

import pubsub.client.core.chain
import pubsub.client.flows.calls
import pubsub.client.flows.gets
import pubsub.client.storage.store
import pubsub.client.table_view
import pubsub.protocol.topic_settings
import pubsub.proxy.assignments
import pubsub.proxy.routing_table
import pubsub.proxy.servers
import pubsub.proxy.traffic
import pubsub.server.moves.chunks
import pubsub.server.moves.giving
import pubsub.server.moves.moves
import pubsub.server.moves.receiving
import pubsub.server.offline.restore
import pubsub.server.process
import pubsub.server.requests.admission
import pubsub.server.standby.disk.local_file
import pubsub.server.standby.disk.member_disk
import pubsub.server.standby.disk.pages
import pubsub.server.standby.disk.segment
import pubsub.server.standby.disk.snapshot
import pubsub.server.standby.disk.stream
import pubsub.server.standby.replication.follower
import pubsub.server.storage.store
import pubsub.server.topic.compacted
import pubsub.server.topic.delivery
import pubsub.server.upkeep.compaction
import pubsub.server.upkeep.delays
import pubsub.server.upkeep.retention
import pubsub.server.upkeep.staging
import pubsub.server.upkeep.stretches
from tests.simulation.applications.taking import CHUNK_MAX
from tests.simulation.disk import untidy
from tests.simulation.files import SYSTEM, open_beside
from tests.simulation.members import MemberStore, small_stream
from tests.simulation.nodes import Router
from tests.simulation.situations import counted

SCARCE = (
    (pubsub.proxy.assignments, "TENTATIVE_MAX", 1),
    (pubsub.proxy.routing_table, "TENTATIVE_MAX", 1),
    (pubsub.server.moves.giving, "GIFTS_MAX", 1),
    (pubsub.server.moves.receiving, "INCOMING_MAX", 1),
    (
        pubsub.server.moves.receiving,
        "IDLE_SECONDS",
        15.0,
    ),  # Else the only place is taken for longer than a run settles.
    (pubsub.server.moves.receiving, "PIECES_MAX", 10),
    (pubsub.server.requests.admission, "PIECES_MAX", 10),
    (pubsub.server.topic.delivery, "BATCHES_MAX", 1),
    (pubsub.server.upkeep.staging, "PIECES_MAX", 10),
)
"""Limits that runs with `scarce` reach.

The only place for an arriving topic is free again within the time to settle.
"""


class Seeded:
    """In place of `secrets`, for store IDs."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_hex(self, size: int) -> str:
        return self._random.randbytes(size).hex()


@contextlib.contextmanager
def small(random: Random, counters: dict[str, int] | None = None) -> Iterator[None]:
    """Limits so small that a run reaches them, and store IDs from the seed; situations are counted."""
    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (pubsub.proxy.assignments, "TENTATIVE_SECONDS", 12.0),
            (pubsub.proxy.servers, "EXPIRE_SECONDS", 1.0),
            (pubsub.proxy.traffic, "_recv", Router.recv),
            (pubsub.proxy.traffic, "_send", Router.send),
            (pubsub.proxy.traffic, "_get", Router.get),
            (pubsub.client.storage.store, "CHECKPOINT_PAGES", 80),
            (pubsub.client.table_view, "PAGE_RECORDS", 5),
            (pubsub.client.core.chain, "SINGLY_SECONDS", 1.0),
            (pubsub.client.flows.gets, "CHUNK_MAX", CHUNK_MAX),
            (pubsub.server.moves.chunks, "CHUNK_BATCHES", 4),
            (pubsub.server.moves.chunks, "CHUNK_ITEMS", 3),
            (pubsub.server.upkeep.delays, "PIECE_ROWS", 3),
            (pubsub.server.upkeep.retention, "ROUND_SECONDS", 1.0),
            (pubsub.server.upkeep.retention, "LOOK_SECONDS", 0.3),
            (pubsub.server.upkeep.retention, "PIECE_BATCHES_MIN", 8),
            (pubsub.server.upkeep.compaction, "LOOK_SECONDS", 0.3),
            (pubsub.server.upkeep.compaction, "LEFT_SECONDS", 0.5),
            (pubsub.server.upkeep.compaction, "LEFT_SECONDS_MAX", 1.0),
            (pubsub.server.upkeep.stretches, "STRETCH_RECORDS", 6),
            (pubsub.server.upkeep.stretches, "COMPACT_KEYS_MAX", 4),
            (pubsub.server.topic.compacted, "KEPT_MAX", 9),
            (pubsub.protocol.topic_settings, "TOMBSTONES_MIN", 1),
            (pubsub.server.upkeep.staging, "LEFT_SECONDS", 20.0),
            (pubsub.server.storage.store, "secrets", Seeded(random)),
            (pubsub.server.offline.restore, "secrets", Seeded(random)),
            (pubsub.client.storage.store, "secrets", Seeded(random)),
            (pubsub.client.flows.calls, "secrets", Seeded(random)),
            (pubsub.server.process, "Store", MemberStore),
            (pubsub.server.standby.disk.member_disk, "hold", lambda directory: StringIO()),
            (pubsub.server.standby.disk.member_disk, "Store", MemberStore),
            (pubsub.server.standby.disk.member_disk, "SystemRandom", lambda: random),
            (pubsub.server.standby.disk.member_disk, "LOG_BYTES_MAX", 10_000),
            (pubsub.server.standby.disk.member_disk, "Stream", small_stream),
            (pubsub.server.standby.disk.stream, "RECENT_BYTES_MAX", 5_000),
            (pubsub.server.standby.disk.snapshot, "open_database", open_beside),
            (pubsub.server.standby.disk.local_file, "os", SYSTEM),
            (pubsub.server.standby.disk.pages, "os", SYSTEM),
            (pubsub.server.standby.disk.segment, "os", SYSTEM),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(untidy())
        stack.enter_context(counted({} if counters is None else counters))
        stack.callback(SYSTEM.forget)
        yield


@contextlib.contextmanager
def scarce(so: bool) -> Iterator[None]:
    """Tables and looks so small that a run reaches them, where it is `so`."""
    with contextlib.ExitStack() as stack:
        for target, name, value in SCARCE if so else ():
            stack.enter_context(mock.patch.object(target, name, value))
        yield
