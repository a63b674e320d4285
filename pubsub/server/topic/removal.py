"""The records that a topic has let go of: whether any went, and the parts of its logs that compaction has thinned out.

The rules are those of docs/explanation/merge.md, M18.

A holder that has let go of records comes first in the history of a merge. Otherwise a late repetition of an old put,
which began the topic at another server, would follow the record that replaced it. At most one holder has let go of
records, because only a sole owner may.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from pubsub.server.topic.spans import LogId, Number

ROUNDS_MAX: Final = 64
"""Rounds of compaction of which the place of their last tombstone is remembered."""


class Round(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A round of compaction in which tombstones went.

    Attributes:
        number: of the tombstones that had gone after it.
        log, offset: the place of the tombstone of this round that came last in the history.
    """

    number: Number
    log: LogId
    offset: Number


class Removal(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The removals of a topic.

    Attributes:
        let_go: True if a record went, so that a new reader of the history does not receive it.
        tombstones: number of tombstones that went.
        rounds: the last rounds in which tombstones went, the oldest first.
    """

    let_go: bool = False
    tombstones: Number = 0
    rounds: Annotated[tuple[Round, ...], Meta(max_length=ROUNDS_MAX)] = ()


NOTHING: Final = Removal()
LET_GO: Final = Removal(let_go=True)


def merged(mine: Removal, its: Removal) -> Removal:
    """Return the removals of a topic that two holders have as one from now on."""
    if its in (NOTHING, mine):
        return mine
    rounds = (*its.rounds, *mine.rounds)[-ROUNDS_MAX:]
    return Removal(mine.let_go or its.let_go, mine.tombstones + its.tombstones, rounds)
