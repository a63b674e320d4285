"""Make the tables of a state file that came after format 2, and mark a file that an earlier release must not open."""

from __future__ import annotations

from typing import Final

import apsw

from pubsub.client.core import changes as c
from pubsub.client.storage.tables import (
    CALLS,
    DEAD_LETTER_METADATA,
    DELETIONS,
    FORMAT,
    FORMAT_WAITING,
    GROUPS,
    PATTERNS,
    REPLAYS,
    STARTS,
    UNTOLD,
    WAITING,
)

ITS_OWN: Final = frozenset({c.Renewed, c.PutAside, c.Redriven})
"""Changes for which this kind of store does more than to run their statements."""


def note(db: apsw.Connection, change: c.Change) -> None:
    """Do for a change what only a state file needs, beside its statements."""
    if isinstance(change, c.Renewed):
        db.execute("update pubsub_state set value = ? where key = 'store'", (change.store,))
        db.execute("update pubsub_state set value = 0 where key = 'cuts'")
    elif db.pragma("user_version") != FORMAT_WAITING:
        # Keep out releases that would not handle the waiting messages.
        db.pragma("user_version", FORMAT_WAITING)


def make_later_tables(db: apsw.Connection, found: int) -> None:
    """Make the tables that came after format 2; without waiting messages, the file is of that format again."""
    tables = (STARTS, REPLAYS, UNTOLD, DELETIONS, DEAD_LETTER_METADATA, *PATTERNS, *CALLS, *WAITING, *GROUPS)
    for table in tables:
        db.execute(table)
    if found == FORMAT_WAITING and not db.execute("select count(*) from pubsub_later").get:
        db.execute(f"pragma user_version = {FORMAT}")
