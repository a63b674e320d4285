"""The parts of a store that belong to one machine and its processes. They are written here, outside of a loop.

    meta store        the store's ID, made with the store (`storage.store`)
    meta incarnation  the number of the last start; it rises
    meta server       the ID of the server that started last, for commands that open the store without a configuration
    note port         the server's last port, if the operating system chose it

None of these is part of a commit (`topic.commits`): another store that applies the same commits has its own. All other
data in a store comes from the changes of a loop, or of a command on a stopped server (`offline`).

A server with two members (`standby`) differs in these parts:

    store              the same at both members, because the first copy of the store contains it
    incarnation        the term, assigned by the register; the term's first entry makes it durable at both members
    server             the same at both members; each one writes it
    port               separate for each member, in a file beside the store, which a copy does not replace
    a damaged batch    `BatchQuarantined` stays local, because the other member's copy is intact. `BatchRepaired` stays
                       local too: it keeps that copy beside the damaged batch.
    commands on a      `restored` ends the pair: its changes reach the other member by a copy
    stopped server
    format             each process migrates the store that it opens to write, at both members; the standby is
                       upgraded first
"""

from __future__ import annotations

from pubsub.errors import StoreFull
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import NoteKept
from pubsub.server.topic.notes import PORT


def begin_incarnation(store: Store, wall_ms: int, server: str = "") -> int:
    """Begin a new incarnation, durably, and return its number.

    Args:
        store: open.
        wall_ms: milliseconds since 1970.
        server: the ID of the server that starts.

    Raises:
        StorageError: it cannot be written.
    """
    incarnation = max(wall_ms, store.incarnation() + 1)
    with store.guarded():
        store.db.executemany(
            "insert or replace into meta values (?,?)", (("incarnation", incarnation), ("server", server))
        )
    return incarnation


def keep_port(store: Store, port: int) -> None:
    """Record the port, durably. A full disk is no error, because the server can still serve its data.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        with store.guarded():
            store.apply([NoteKept(PORT, port)])
    except StoreFull:
        return


def kept_port(store: Store) -> int | None:
    """Return the server's last port; None if it had none, or if it was configured."""
    port = store.notes().get(PORT)
    return port if isinstance(port, int) else None
