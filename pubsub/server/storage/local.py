"""What a store holds of this machine and its processes alone. It is written here, outside of a loop.

    meta store        the store's ID, made with it (`storage.store`)
    meta incarnation  the number of the last start, which rises
    meta server       the ID of the server that started last, for who opens the store without a configuration
    note port         the port that the server had, where it was left to chance

None of it is part of a commit (`topic.commits`): another store that takes over commits has its own. All else that a
store holds comes by the changes of a loop, or of a command on a stopped server (`offline`).

Where a server has two members (`standby`), what bypasses commits is otherwise:

    store              the same at both: it comes with the copy of the store that a member begins with
    incarnation        the term, which the register gives; the term's first entry makes it durable at both
    server             the same at both; each member writes it
    port               the member's own, in a file beside the store, which a copy does not replace
    a damaged batch    `BatchQuarantined` stays local: the other member's copy of the batch is whole; and so does
                       `BatchRepaired`, by which that copy is kept beside the damaged one
    commands on a      `restored` ends the pair: what it changed reaches the other member by a copy
    stopped server
    added tables       are made by whoever opens the store, at both alike; the standby is upgraded first
"""

from __future__ import annotations

from pubsub.errors import StoreFull
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import NoteKept
from pubsub.server.topic.notes import PORT


def begin_incarnation(store: Store, wall_ms: int, server: str = "") -> int:
    """Begin a new incarnation, durably, and give its number.

    Args:
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
    """Note the port, durably; not where the disk is full: what is there can be served all the same.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        with store.guarded():
            store.apply([NoteKept(PORT, port)])
    except StoreFull:
        return


def kept_port(store: Store) -> int | None:
    """The port that the server had; None where it had none, or was told which."""
    port = store.notes().get(PORT)
    return port if isinstance(port, int) else None
