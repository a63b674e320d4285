"""Going on with a store that is an older copy of itself (docs/architecture.md, *Ownership*).

A store that was put back from a backup lacks the end of its logs. What was there, nobody knows: publishers may have
been told that it is kept, subscribers may have received it. So nothing may take its place. Each open log ends here,
with all its offsets beyond what is stored counted as lost, and another one goes on:

    a position beyond the copy's end    within the lost range: its client is told of the loss, once, and goes on
    a put that follows one not here     names a log that does not reach it: gone, and the client's chain begins anew
    another server that knows of a log  is told by the operator: pubsub topic abandon
      that the copy lacks
    another server that holds the log   has all of it: a merge leaves out logs already held
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import translate
from pubsub.base.limits import OFFSET_MAX
from pubsub.errors import ConfigurationError
from pubsub.server.storage.schema import FILE, MEMBER
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import ACCEPTED, HELD, STALE, STALE_CHANGE
from pubsub.server.topic.topic import Log, Topic

CHANGE_STEP: Final = 1 << 32
"""Far more changes than a server makes between a backup and its return: what proxies remember is below."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done.

    Attributes:
        server: the ID of the server that used the store last, "" where none did.
        topics: those that go on in new logs.
        frozen: those that were on their way to another server: the copy has all of them, and they go there.
    """

    server: str
    topics: tuple[str, ...]
    frozen: tuple[str, ...]


def accept_copy(directory: Path) -> Restored:
    """Have a stopped server's store go on as what it is: all of it in one transaction, or nothing.

    Args:
        directory: the server's.

    Raises:
        StoreInUse: the server is running.
        ConfigurationError: there is no store, or it is one member's of two.
        StorageError: the store cannot be read or written.
    """
    if not (directory / FILE).exists():
        raise ConfigurationError(f"{directory} holds no server's store")
    if (directory / MEMBER).exists():
        raise ConfigurationError(
            f"{directory} is that of a member of two, and proxies keep who of them serves: pubsub server promote"
        )
    with contextlib.closing(Store(directory)) as store:
        return end_logs(store)


def end_logs(store: Store) -> Restored:
    """The same on an open store.

    Raises:
        StorageError: it cannot be read or written.
    """
    try:
        topics = list(store.topics())
        notes = store.notes()
        change = int(notes.get(STALE_CHANGE) or 0)
        with store.guarded():
            number = store.next_numbers()[1]
            for added, topic in enumerate(topic for topic in topics if not topic.frozen):
                store.apply(_end_log(topic, number + added))
            store.apply([c.NoteKept(name, None) for name in notes if _is_quarantine(name)])
            store.apply([c.NoteKept(ACCEPTED, 1)])
            # The change number must be above any that proxies remember of the store that this is a copy of.
            store.apply([c.ChangeCounted(max(change, store.change()) + CHANGE_STEP, store.stamp())])
        return Restored(
            store.server_id,
            tuple(topic.name for topic in topics if not topic.frozen),
            tuple(topic.name for topic in topics if topic.frozen),
        )
    except apsw.Error as error:
        raise translate(error, store.path) from None


def _is_quarantine(note: str) -> bool:
    return note in {STALE, STALE_CHANGE} or note.startswith(HELD)


def _end_log(topic: Topic, number: int) -> list[c.Change]:
    """Close the open log with an end that is lost, and open the one of this number."""
    old, log = topic.open, Log(number, secrets.token_hex(8))
    topic.go_on_in(log, OFFSET_MAX)
    out: list[c.Change] = [c.LogEnded(old.number, here=True), c.LogOpened(number, log.id, topic.number)]
    out.append(c.TopicChanged(topic.number, topic.name, number, topic.history, ""))
    for name, subscription in topic.subscriptions.items():
        out.append(c.SubscriptionChanged(topic.number, name, *subscription.row()))
    return out
