"""Facts about consumer groups, as an operator sees them (docs/how-to/share-work.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pubsub.base.plurals import counted


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group of a topic. Figures are numbers of messages, unless they say otherwise.

    Attributes:
        topic, name: the topic, and the group's name on it.
        number: its number; a group that is ended and made again has a higher one.
        mode: `shared` or `keyed`.
        parts: of a keyed group; 0: it is shared.
        on_lost: `wait`, or `redeliver` after `lost_seconds` without a message of the member.
        lost_seconds: see `on_lost`.
        attempts: number of attempts after which a message becomes a dead letter.
        made: time at which it was made (microseconds since 1970).
        suspended: True if its server's store was restored, until an operator resumes the group.
        full: True if it has too many dead letters, so that nothing more is claimed.
        waiting: no member has them.
        offered: members have them, and may not commit their effects yet.
        claimed: members have them, and may commit their effects; those in doubt are among them.
        in_doubt: claimed by members that are silent.
        in_doubt_members: number of these members.
        in_doubt_seconds: time since the one that is silent for longest was heard; None: nothing is in doubt.
        delayed: they wait for a later attempt.
        dead_letters, dead_letter_bytes: of the group.
        members, members_heard: all members that are remembered, and those of them that are heard.
        hungry: members that wait for work at present.
    """

    topic: str
    name: str
    number: int
    mode: str
    parts: int
    on_lost: str
    lost_seconds: float
    attempts: int
    made: int
    suspended: bool
    full: bool
    waiting: int
    offered: int
    claimed: int
    in_doubt: int
    in_doubt_members: int
    in_doubt_seconds: float | None
    delayed: int
    dead_letters: int
    dead_letter_bytes: int
    members: int
    members_heard: int
    hungry: int

    @classmethod
    def of(cls, topic: str, row: Mapping[str, Any]) -> GroupFacts:
        """Read a row of an answer or a report.

        Raises:
            KeyError, TypeError: it has another form.
        """
        own = {"topic": topic, "lost_seconds": row["lost_ms"] / 1000}
        return cls(**own, **{name: row[name] for name in cls.__slots__ if name not in own})

    def __str__(self) -> str:
        kind = f"keyed in {counted(self.parts, 'part')}" if self.parts else "shared"
        lost = f"on_lost={self.on_lost}, lost_seconds={self.lost_seconds:g}"
        return f"{kind}, {lost}, {counted(self.attempts, 'attempt')}"


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member of a consumer group: a client, from one state directory.

    Attributes:
        client: its client ID.
        store: the ID of its state directory (hexadecimal).
        number: of its last message; a release names it, so that it cannot hit a member that went on.
        heard: True if it sent a message within the server's `member_liveness_seconds`.
        heard_seconds: time since its last message; None: none came since the server started.
        left: True if its last message said that it leaves.
        claimed, offered: numbers of messages that it holds.
        in_doubt: of those that are claimed; 0 while it is heard.
        ranges: the first ranges that it has claimed, `log.low-high` without the last.
        held_seconds: time since it claimed the oldest of them; None: nothing, or not known.
    """

    client: str
    store: str
    number: int
    heard: bool
    heard_seconds: float | None
    left: bool
    claimed: int
    offered: int
    in_doubt: int
    ranges: tuple[str, ...]
    held_seconds: float | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> MemberFacts:
        """Read a row of an answer.

        Raises:
            KeyError, TypeError: it has another form.
        """
        ranges = tuple(map(str, row["ranges"]))
        return cls(ranges=ranges, **{name: row[name] for name in cls.__slots__ if name != "ranges"})

    @property
    def id(self) -> str:
        """`client/store`, as a message's publisher is written."""
        return f"{self.client}/{self.store}"


@dataclass(frozen=True, slots=True)
class GroupLetter:
    """A dead letter of a consumer group, without its contents.

    Attributes:
        id: the message's ID.
        publisher, counter, stamp: as of a `Message`.
        reason: of the handler's `Reject`; otherwise the server's word, such as `attempts_used_up`, and the last known
            error of a handler.
        attempts: number of attempts.
        bytes: of the message.
        kind: `dead`; `doubt` if it is in doubt for long, so that the group keeps a copy; `waiting` if it is redriven
            and not done yet.
    """

    id: str
    publisher: str
    counter: int
    stamp: int
    reason: str
    attempts: int
    bytes: int
    kind: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> GroupLetter:
        """Read a row of an answer.

        Raises:
            KeyError, TypeError: it has another form.
        """
        return cls(**{name: row[name] for name in cls.__slots__})
