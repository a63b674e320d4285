"""Represent durable changes as values: the core decides a change, and the store applies it in one transaction.

`FSYNC` names the changes that must be on the disk, not only in the kernel, before anything that follows from them is
sent (docs/explanation/put.md, *Durability at the client*). All others survive the end of the process, and a later fsync
covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.protocol import Position
from pubsub.protocol.names import LATEST, Start


@dataclass(slots=True)
class RowAdded:
    """A put batch enters the outbox."""

    topic: str
    counter: int
    previous: int
    count: int
    sole_owner: int
    checksum: int
    body: bytes


@dataclass(slots=True)
class RowsRemoved:
    """Batches leave the outbox: the service has them, or they were discarded."""

    counters: Sequence[int]


@dataclass(slots=True)
class RowUnchained:
    """The oldest unfinished batch of a topic begins the chain anew, because the log was given up."""

    counter: int


@dataclass(slots=True)
class ChainMoved:
    """The state of a topic's chain without rows in the outbox.

    Attributes:
        previous: the last counter that was not discarded.
        cleared: number of the power cut up to which a marked put has succeeded.
        log: the log that answered last.
    """

    topic: str
    previous: int
    cleared: int
    log: str


@dataclass(slots=True)
class Intended:
    """The application wants to be subscribed to a topic or not; the service has not confirmed it.

    Attributes:
        fresh: the new subscription begins at `start`, in place of any subscription of this client ID at the service.
        start: where a new subscription begins. A fresh one before the end must receive earlier messages again, so the
            store drops their counters.
        replay: number of the replay that it begins; 0: it begins none.
        pattern: the number of the pattern by which the client joins the topic; 0: the application names the topic.
    """

    topic: str
    on: bool
    fresh: bool = False
    start: Start = LATEST
    replay: int = 0
    pattern: int = 0


@dataclass(slots=True)
class PatternIntended:
    """The application wants to be subscribed to a pattern of topics or not; not every proxy has confirmed it.

    Attributes:
        stamp: messages with an earlier timestamp are not wanted; 0: those from before the request are not.
    """

    pattern: str
    on: bool
    number: int
    stamp: int = 0


@dataclass(slots=True)
class PatternConfirmed:
    """Every proxy has confirmed the wish. Messages with a timestamp before `stamp` are not received."""

    pattern: str
    stamp: int


@dataclass(slots=True)
class Confirmed:
    """The service answered the last transmission of an intent: the subscription is settled."""

    topic: str
    number: int
    position: Position | None
    log: str


@dataclass(slots=True)
class Taken:
    """The application has all messages up to this position; `counters` are the last ones by publisher."""

    topic: str
    position: Position
    counters: Mapping[str, int]


@dataclass(slots=True)
class Tried:
    """A handler is about to process this message for the n-th time, n = `attempts`."""

    topic: str
    position: Position
    attempts: int


@dataclass(slots=True)
class PutOff:
    """The next message of a topic keeps its place, and is handled again at `due`.

    Attributes:
        due: seconds since 1970.
        seconds: length of the wait, which a wrong clock must not prolong.
        later: number of its attempts that are no failures.
    """

    topic: str
    position: Position
    due: float
    seconds: float
    later: int


@dataclass(slots=True)
class PutAside:
    """A message moves to the table of waiting messages; the same commit has its position.

    Attributes:
        first: position as text.
        headers: encoded as in the message's batch.
        lane: messages of one lane keep their order; b"": none.
        attempts, later, due, seconds: as in `WaitingChanged`.
    """

    number: int
    topic: str
    first: str
    publisher: str
    counter: int
    stamp: int
    body: bytes
    key: bytes
    headers: bytes
    doubtful: bool
    lane: bytes
    attempts: int
    later: int
    due: float
    seconds: float


@dataclass(slots=True)
class WaitingChanged:
    """A waiting message begins an attempt, gives it back, or waits again.

    Attributes:
        attempts: number of attempts that have begun.
        later: number of these that are no failures.
        due: seconds since 1970.
        seconds: length of the wait.
    """

    number: int
    attempts: int
    later: int
    due: float
    seconds: float


@dataclass(slots=True)
class WaitingTried:
    """A handler is about to process a waiting message for the n-th time, n = `attempts`; or that is taken back."""

    number: int
    attempts: int


@dataclass(slots=True)
class WaitingEnded:
    """A waiting message was handled, or is a dead letter; the same commit has what follows from that."""

    number: int


@dataclass(slots=True)
class WaitingDropped:
    """The application gives up the backlog of a topic, and with it the waiting messages."""

    topic: str


@dataclass(slots=True)
class Redriven:
    """A dead letter becomes the waiting message `number` with no attempts, due at once.

    Attributes:
        letter: its number in the table of dead letters.
    """

    letter: int
    number: int


@dataclass(slots=True)
class LettersRemoved:
    """Dead letters go. `letters`: their numbers in the table."""

    letters: Sequence[int]


@dataclass(slots=True)
class CallsDiscarded:
    """Calls end because their requests leave the outbox unfinished. Calls with a reply keep the reply."""

    calls: Sequence[str]


@dataclass(slots=True)
class DeadLettered:
    """A message or a range of lost messages moves to the dead letters. The application must still learn of a range.

    Attributes:
        first, last: positions as text, `log.offset`.
        at: seconds since 1970.
        headers: encoded as in the message's batch.
    """

    topic: str
    first: str
    last: str
    publisher: str
    counter: int
    stamp: int
    body: bytes | None
    error: str
    attempts: int
    at: float
    key: bytes = b""
    headers: bytes = b""


@dataclass(slots=True)
class DeletionNoted:
    """The application must still learn that an operator deleted a topic. No message of it is known to be lost."""

    topic: str
    reason: str


@dataclass(slots=True)
class Told:
    """The application learned of the oldest losses on a topic.

    Attributes:
        count: number of losses with a dead letter.
        deletions: number of deletions of the topic, from `DeletionNoted`.
    """

    topic: str
    count: int
    deletions: int = 0


@dataclass(slots=True)
class LossRaised:
    """The application learns at once of the loss that the same commit keeps as a dead letter, the newest of a topic."""

    topic: str


@dataclass(slots=True)
class Renewed:
    """The state directory becomes another publisher: a new store ID, and every chain begins anew."""

    store: str


@dataclass(slots=True)
class GroupJoined:
    """The client is a member of a consumer group. Its work under another number of the group is forgotten.

    Attributes:
        member: number of this membership in the state file.
        store: the client's store ID: another one is another member.
        number: of the group.
        log: that answered last.
        values: as the service has them, JSON.
        wish: as the application named them, JSON.
    """

    member: int
    topic: str
    name: str
    store: str
    number: int
    log: str
    values: str
    wish: str


@dataclass(slots=True)
class GroupOpened:
    """A process works for the group, or has left it.

    Attributes:
        left: True if it holds nothing, and the service knows that.
        cuts: number of the power cut up to which the service was told.
    """

    member: int
    left: bool
    cuts: int


@dataclass(slots=True)
class GroupDone:
    """The effects of a range of a group's records are in this commit, or in earlier ones.

    Attributes:
        part: -1 in a shared group.
        replaced: starts of earlier ranges that are a part of this one.
    """

    member: int
    log: str
    part: int
    low: int
    high: int
    replaced: Sequence[int] = ()


@dataclass(slots=True)
class GroupTold:
    """The service knows of finished records. Of a lane, only `ranges` are kept."""

    member: int
    log: str
    part: int
    ranges: Sequence[tuple[int, int]]


@dataclass(slots=True)
class GroupBegun:
    """A handler is about to process a record of a group for the n-th time over all members, n = `attempts`."""

    member: int
    log: str
    offset: int
    attempts: int


@dataclass(slots=True)
class GroupAttemptsTold:
    """The attempts at these records are over: they are done, or the service knows of them."""

    member: int
    places: Sequence[Position]


@dataclass(slots=True)
class GroupForgotten:
    """A membership is over, and nothing of it is kept."""

    member: int


Change = (
    RowAdded
    | RowsRemoved
    | RowUnchained
    | ChainMoved
    | CallsDiscarded
    | Intended
    | PatternIntended
    | PatternConfirmed
    | Confirmed
    | Taken
    | Tried
    | PutOff
    | PutAside
    | WaitingChanged
    | WaitingTried
    | WaitingEnded
    | WaitingDropped
    | Redriven
    | LettersRemoved
    | DeadLettered
    | DeletionNoted
    | Told
    | LossRaised
    | Renewed
    | GroupJoined
    | GroupOpened
    | GroupDone
    | GroupTold
    | GroupBegun
    | GroupAttemptsTold
    | GroupForgotten
)

FSYNC: Final = frozenset(
    {
        Intended,
        PatternIntended,
        PatternConfirmed,
        Confirmed,
        DeadLettered,
        DeletionNoted,
        Renewed,
        RowUnchained,
        GroupJoined,
    }
)
"""Changes with an fsynced commit under any settings."""
