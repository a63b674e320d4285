"""The rows of consumer groups, as a store, a chunk and a commit have them (docs/explanation/groups.md).

The waiting records of a group are in subscriptions of its own, one for each part (`consumers.group_key`). So merges,
retention and moves treat a part like a subscriber.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from pubsub.base.limits import ATTEMPT_ERROR_LENGTH_MAX, ATTEMPTS_MAX, PARTS_MAX
from pubsub.protocol.names import HEX, ID, PUBLISHER
from pubsub.server.topic.change import Buffer, RecordedChange
from pubsub.server.topic.spans import LogId, Number, Span

Name = Annotated[str, Meta(pattern=rf"\A{ID}\Z")]
StoreId = Annotated[str, Meta(pattern=rf"\A{HEX}\Z")]
DatabaseId = Annotated[str, Meta(pattern=rf"\A(?:{HEX})?\Z")]
Part = Annotated[int, Meta(ge=0, lt=PARTS_MAX)]
Reason = Annotated[str, Meta(max_length=400)]
ErrorText = Annotated[str, Meta(max_length=ATTEMPT_ERROR_LENGTH_MAX)]


class GroupRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A group.

    Attributes:
        number: the highest number ever requested.
        on: False: the group has ended.
        parts: of a keyed group; 0: it is shared.
        redeliver: True: the claims of a silent member are given up after `lost_ms` milliseconds.
        attempts: after so many a record becomes a dead letter.
        made: microseconds since 1970.
        suspended: True: the store was put back, and an operator has not resumed the group yet.
        used: True: a member has worked here, after this server was known to be the topic's sole owner.
        order: the spans in the order in which they are handed out; it gives returned ranges their place.
    """

    number: Number
    on: bool
    parts: Annotated[int, Meta(ge=0, le=PARTS_MAX)]
    redeliver: bool
    lost_ms: Number
    attempts: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)]
    made: Number
    suspended: bool = False
    used: bool = False
    order: tuple[Span, ...] = ()


class HeldRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A range that a member has claimed; `part` is 0 in a shared group."""

    part: Part
    log: LogId
    low: Number
    high: Number


class MemberRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A member.

    Attributes:
        number, epoch: the highest of its messages.
        left: True: its process has said its last message.
        heard: when it was heard, as last written (microseconds since 1970).
        held: its claims.
        database: identifies the database with its state; "": none that another member could look into.
    """

    number: Number
    epoch: Number
    left: bool = False
    heard: Number = 0
    held: tuple[HeldRow, ...] = ()
    database: DatabaseId = ""


class RetryRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The facts of records that are not new.

    Attributes:
        high: one above the last offset; 0: the row is gone.
        attempts: begun so far, at any member.
        forgiven: those of them that do not count towards the dead letters.
        losses: members that went silent while it was the first record of their offer.
        due: it is not handed out before (microseconds since 1970).
        doubtful: it was given up while a member had claimed it.
        error: of the last failed attempt, percent-encoded; "": none is known.
    """

    part: Part
    log: LogId
    low: Number
    high: Number
    attempts: Number = 0
    forgiven: Number = 0
    losses: Number = 0
    due: Number = 0
    doubtful: bool = False
    error: ErrorText = ""


class CopyRow(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A record that was copied out of its log.

    Attributes:
        state: 0: a dead letter, 1: a member has claimed it, 2: it waits.
        counter, stamp: as in the log.
        size: bytes of the batch with the record alone.
        reason: percent-encoded.
        died: microseconds since 1970.
    """

    part: Part
    log: LogId
    offset: Number
    state: Annotated[int, Meta(ge=0, le=2)]
    publisher: Annotated[str, Meta(pattern=rf"\A{PUBLISHER}\Z")]
    counter: Number
    stamp: Number
    size: Number
    attempts: Number
    reason: Reason
    died: Number


class GroupChanged(RecordedChange):
    """A group is new or has changed."""

    topic: Number
    group: Name
    row: GroupRow


class MemberChanged(RecordedChange):
    """A member is new or has changed."""

    topic: Number
    group: Name
    client: Name
    store: StoreId
    row: MemberRow


class MemberGone(RecordedChange):
    """A member is forgotten."""

    topic: Number
    group: Name
    client: Name
    store: StoreId


class RetriesChanged(RecordedChange):
    """Rows of retries are new, have changed, or are gone."""

    topic: Number
    group: Name
    rows: tuple[RetryRow, ...]


class CopyKept(RecordedChange):
    """A record is copied out of its log."""

    topic: Number
    group: Name
    row: CopyRow
    body: Buffer


class CopyChanged(RecordedChange):
    """A copied record has another state."""

    topic: Number
    group: Name
    row: CopyRow


class CopyGone(RecordedChange):
    """A copied record is done, or was dropped."""

    topic: Number
    group: Name
    log: LogId
    offset: Number


class CopiesMerged(RecordedChange):
    """Copies that arrived with a transfer belong to a topic now.

    Attributes:
        shelf: the number under which they were stored.
    """

    shelf: Number
    topic: Number
    group: Name


class CopiesDropped(RecordedChange):
    """Copies that arrived with a transfer belong to no topic."""

    shelf: Number


class GroupEmptied(RecordedChange):
    """All members, retries and copies of a group are gone."""

    topic: Number
    group: Name
