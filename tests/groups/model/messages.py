"""The messages between members and a server, and the values in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Position = tuple[str, int]
"""A log and an offset."""

Content = tuple[str, int, int]
"""Identifies a message: its publisher, that one's count, its key."""

MemberID = tuple[str, int]
"""A client and its store."""


@dataclass(frozen=True)
class Record:
    """One message in a log."""

    publisher: str
    counter: int
    key: int
    content: Content


class Shown(NamedTuple):
    """A message as an answer shows it."""

    record: Record
    doubtful: bool
    begun: bool


@dataclass(frozen=True)
class Subscribe:
    """Join a group, or make it under this number."""

    sender: MemberID
    process: int
    number: int
    earliest: bool
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Work:
    """All that a member tells and asks.

    Attributes:
        subscription: the number of the group.
        tried: messages whose handler began and ended without an effect.
        later: for messages that go back, the ticks until they may be delivered.
        cut: the host lost power, so each claim counts as begun.
        early: what the answer brings shall be claimed already.
        database: with the state of the member; 0: a directory.
        wait: the answer may wait until there is something.
    """

    sender: MemberID
    process: int
    subscription: int
    number: int
    done: frozenset[Position] = frozenset()
    keep: frozenset[Position] = frozenset()
    offered: frozenset[Position] = frozenset()
    claims: tuple[Position, ...] = ()
    tried: frozenset[Position] = frozenset()
    later: Mapping[Position, int] = field(default_factory=dict)
    cut: bool = False
    want: int = 0
    early: bool = False
    wait: bool = False
    leaving: bool = False
    avoid: frozenset[str] = frozenset()
    database: int = 0


@dataclass(frozen=True)
class Settle:
    """What a member has found in its database of another one.

    Attributes:
        silent: the other one, and its number when the look was asked for.
        tried: its attempts without an effect.
    """

    sender: MemberID
    process: int
    subscription: int
    silent: tuple[MemberID, int]
    database: int
    done: frozenset[Position]
    tried: frozenset[Position]
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Answer:
    """The answer of a server.

    Attributes:
        outcome: "shown", "unknown", "superseded", "joined" or "busy".
        log: the open log of the server, to be avoided after "unknown".
        subscription: after "joined", the number of the group.
        silent: a member to be looked up, and its number.
    """

    outcome: str
    process: int
    number: int
    log: str = ""
    subscription: int = 0
    held: Mapping[Position, Shown] = field(default_factory=dict)
    offered: Mapping[Position, Shown] = field(default_factory=dict)
    silent: tuple[MemberID, int] | None = None


Request = Subscribe | Work | Settle
