"""Where in the history a store stands, and entries carried out on it.

Each transaction that makes an entry durable writes the entry's ID beside its changes. So a store says of itself which
entry it ends with, whatever the stream file holds, and an entry is carried out once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.standby import EntryId, format_entry
from pubsub.server.standby.replication.entries import Entry, changes_of
from pubsub.server.storage.store import Store

_TERM: Final = "term"
_NUMBER: Final = "number"


def applied_entry(store: Store) -> EntryId:
    """The entry that a store ends with; ROOT before the first one.

    Raises:
        StoreDamaged: what it says of that cannot be read.
    """
    found = dict(store.db.execute("select name, value from meta where name in (?, ?)", (_TERM, _NUMBER)))
    values = tuple(found.get(name, 0) for name in (_TERM, _NUMBER))
    if not all(type(value) is int and value >= 0 for value in values):
        raise StoreDamaged(str(store.path), "the entry that it ends with cannot be read")
    return EntryId(*values)


def keep_entry(store: Store, entry: EntryId) -> None:
    """Write, within the open transaction, which entry the store ends with; its term is the store's incarnation."""
    rows = ((_TERM, entry.term), (_NUMBER, entry.number), ("incarnation", entry.term))
    store.db.executemany("insert or replace into meta values (?,?)", rows)


def apply_entries(store: Store, entries: Iterable[Entry]) -> EntryId:
    """Carry out entries in one transaction, all or none, and give the one that the store ends with then.

    Args:
        entries: in order; the first follows the one that the store ends with.

    Raises:
        StoreDamaged: an entry does not follow the one before it, or a damaged page was met.
        DecodeError: an entry is of a release that makes other changes.
        StorageError: the disk is full, or failed.
    """
    entries = list(entries)
    end = applied_entry(store)
    for entry in entries:
        if entry.previous != end:
            reason = f"entry {format_entry(entry.id)} follows {format_entry(entry.previous)}, not {format_entry(end)}"
            raise StoreDamaged(str(store.path), reason)
        end = entry.id

    store.write([change for entry in entries for change in changes_of(entry)], lambda: keep_entry(store, end))
    return end
