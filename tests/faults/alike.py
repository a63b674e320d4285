"""Whether two members have the same: both are killed at a quiet moment, and their stores are read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pubsub.protocol.standby import EntryId
from pubsub.server.standby.disk.applied import applied_entry, apply_entries
from pubsub.server.standby.disk.member_disk import STREAM
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.storage.store import Store
from tests.faults.checker import Objection
from tests.faults.cluster import until
from tests.faults.members import PATIENCE_SECONDS, Members
from tests.standby.twins import rows

OF_ONE_DISK = {"quarantine", "repaired"}
TRIES = 10


def open_member(directory: Path, stack: ExitStack) -> tuple[Store, EntryId]:
    """The store of a member that has ended, with all it would apply as primary, and the entry it ends with then."""
    store = Store(directory)
    stack.callback(store.close)
    stream = Stream(directory / STREAM, applied_entry(store))
    end = apply_entries(store, stream.staged)
    stream.close()
    return store, end


def compare(members: Members) -> list[Objection]:
    """Kill both members when both are in sync; what one has and the other has not.

    What the primary did in its last moments may not have reached the other one: then both are started, for another try.
    """
    for _ in range(TRIES):
        until(members.in_sync, "both members are in sync in the end", PATIENCE_SECONDS)
        for member in members.members:
            member.running.kill()
        for member in members.members:
            member.running.wait()
        with ExitStack() as stack:
            opened = [open_member(members.data(member), stack) for member in members.members]
            if opened[0][1] == opened[1][1]:
                first, second = (
                    {row for row in map(repr, rows(store)) if not any(f"'{name}'" in row[:20] for name in OF_ONE_DISK)}
                    for store, _ in opened
                )
                return [Objection("unlike", row[:300]) for row in sorted(first ^ second)[:20]]
        for member in members.members:
            member.start()
    return [Objection("unlike", f"the members did not end alike in {TRIES} tries")]
