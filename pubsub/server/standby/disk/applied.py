"""The store's place in the history, and the transactions that apply entries to it.

Each transaction that makes an entry durable writes the entry's ID beside its changes. The store itself therefore
records its last entry, independent of the stream file, and each entry is applied once.
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
    """Return the last entry of a store; ROOT before the first one.

    Raises:
        StoreDamaged: the record of the last entry cannot be read.
    """
    found = dict(store.db.execute("select name, value from meta where name in (?, ?)", (_TERM, _NUMBER)))
    values = tuple(found.get(name, 0) for name in (_TERM, _NUMBER))
    if not all(type(value) is int and value >= 0 for value in values):
        raise StoreDamaged(str(store.path), "damaged: the ID of its last entry cannot be read")
    return EntryId(*values)


def keep_entry(store: Store, entry: EntryId) -> None:
    """Write the store's last entry within the open transaction. The entry's term becomes the store's incarnation."""
    rows = ((_TERM, entry.term), (_NUMBER, entry.number), ("incarnation", entry.term))
    store.db.executemany("insert or replace into meta values (?,?)", rows)


def apply_entries(store: Store, entries: Iterable[Entry]) -> EntryId:
    """Apply entries in one transaction, all or none, and return the last entry of the store.

    Args:
        store: open.
        entries: in order. The first one follows the store's last entry.

    Raises:
        StoreDamaged: an entry does not follow the one before it, or a page is damaged.
        DecodeError: an entry has changes of a release that this one cannot read.
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
