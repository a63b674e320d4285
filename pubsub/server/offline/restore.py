"""Continues with a store that is an older copy of itself (docs/explanation/stores.md, S12 and S13).

A store restored from a backup lacks the end of its logs. The contents of that end are unknown. Publishers may have
received answers about it, and subscribers may have received its messages, so no other messages may take its place. Each
open log therefore ends here, and all its offsets beyond the stored ones count as lost. A new log continues the topic:

    a position beyond the copy's end    It is in the lost range. Its client receives the loss once, and continues.
    a put that follows a missing one    It names a log that does not reach it: the answer is gone, and the client begins
                                        a new chain.
    another server that knows of a log  The operator reports the loss to it: pubsub topic abandon.
      that the copy lacks
    another server that holds the log   It has all of the log. A merge leaves out logs that are already held.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from pubsub.base.clock import MICROSECONDS
from pubsub.base.database import translate
from pubsub.base.limits import OFFSET_MAX
from pubsub.errors import ConfigurationError
from pubsub.server.storage.schema import FILE, MEMBER
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.group import group_changes
from pubsub.server.topic.notes import ACCEPTED, HELD, STALE, STALE_CHANGE
from pubsub.server.topic.topic import Log, Topic

CHANGE_STEP: Final = 1 << 32
"""Far more changes than a server makes between a backup and its return, so that the result exceeds the proxies'
records."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result.

    Attributes:
        server: ID of the server that used the store last, "" if there was none.
        topics: those that continue in new logs.
        frozen: those under transfer to another server. The copy has all of them, and the transfer continues.
    """

    server: str
    topics: tuple[str, ...]
    frozen: tuple[str, ...]


def accept_copy(directory: Path) -> Restored:
    """Make a stopped server's store continue as it is, in one transaction.

    Args:
        directory: of the server.

    Raises:
        StoreInUse: the server is running.
        ConfigurationError: there is no store, or the store belongs to one of two members.
        StorageError: the store cannot be read or written.
    """
    if not (directory / FILE).exists():
        raise ConfigurationError(f"{directory} holds no server's store")
    if (directory / MEMBER).exists():
        raise ConfigurationError(
            f"{directory} belongs to one of two members, and the proxies record which one serves:"
            " use pubsub server promote"
        )
    with contextlib.closing(Store(directory)) as store:
        return end_logs(store, int(time.time() * MICROSECONDS))


def end_logs(store: Store, now: int) -> Restored:
    """Do the same on an open store.

    Args:
        now: the present time (microseconds since 1970). Delayed messages that were due before it count as lost with the
            end of the log, because the original store may have delivered them (docs/explanation/delay.md, DM8).

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
                store.apply(_end_log(topic, number + added, now))
            store.apply([c.NoteKept(name, None) for name in notes if _is_quarantine(name)])
            store.apply([c.NoteKept(ACCEPTED, 1)])
            # The change number must be above any that proxies remember of the original store.
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


def _end_log(topic: Topic, number: int, now: int) -> list[c.Change]:
    """Close the open log with a lost end, and open a log with this number."""
    old, log = topic.open, Log(number, secrets.token_hex(8))
    ordered = bool(topic.order)
    topic.go_on_in(log, OFFSET_MAX)
    out: list[c.Change] = [c.LogEnded(old.number, here=True), c.LogOpened(number, log.id, topic.number)]
    out.append(c.TopicChanged(topic.number, topic.name, number, topic.history, ""))
    if ordered:
        out.append(c.OrderChanged(topic.number, ""))
    for name, subscription in topic.subscriptions.items():
        out.append(c.SubscriptionChanged(topic.number, name, *subscription.row()))
    for group in topic.groups.values():
        out += group_changes(topic.number, group)
    past = sorted(row for row in topic.delayed.rows.values() if row.due <= now)
    return out + [c.DelayedGone(row.shelf, row.due, row.publisher, row.counter) for row in past]
