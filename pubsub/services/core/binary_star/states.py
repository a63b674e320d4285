"""What the two servers of a Binary Star pair may be, as a table of state and event.

Two servers, a primary and a backup, tell each other their state over and over: one ASCII frame, `1` to `4`. Of the two
one is active and takes requests. The other is passive and takes none, until a client asks it while the active one has
been silent for two heartbeats: neither the silence nor the request alone makes it active. That is the client's *vote*,
and so the clients are the third party that two servers lack. A primary that starts waits for two heartbeats whether a
backup that has taken its place is heard. A backup that starts takes nothing until it has seen a primary that is active.

That much is the Guide's (chapter 4, *High-Availability Pair*). Its table lets two servers be active at once in two
cases that need no network to fail, only a process to die or to stand still. What is here beside the Guide's four states
is there for these two, and none of it shows on the wire.

**A word that outlives its speaker.** An active primary says `3`, dies and is started again before that `3` has arrived.
The backup, just started, says `2`: "I am not active until I see you active". Then the old life's `3` arrives, and frees
it from what it said; the new life's `1` makes it active; and its `2` makes the new life active. A second frame that
named the life would settle it, and would break the Guide's peers. So it is settled by waiting: a word that makes its
hearer active (the *permissions* below) counts only after the hearer has listened for two heartbeats. By then whatever
its earlier life said has arrived or is lost, and a `2` that still comes is meant for this life.

**A server that stands still.** An active server is stopped for a while (by a signal, a paused machine, a swapping one)
and does not know it. The backup takes over, and the first takes the requests that wait in its socket before it reads
the backup's `3`. But a clock tells it: who has not said a word for a heartbeat and a half, by its own clock, may have
been given up by the other. It *begins anew*: it is what it would be after a restart, and listens again for two
heartbeats. Half a heartbeat is left for the last word to arrive, which is what this pair asks of its network.

A primary begins anew as PRIMARY. A backup that has been active or passive would be shut out if it began as BACKUP
while the primary is dead, so it is LISTENING, and says nothing: not `4`, which two passive servers would take for an
error, and not `2`, because it may become active before it sees an active primary. If nothing is heard for two
heartbeats, a vote makes it active.

A missing entry is the error: both servers say the same (two are active, two are passive, both were started as
primary). The Guide ends both processes, to be started again by somebody. Here both begin anew, at once and with an
error in the log, which comes to the same and needs nobody.

What no such table can do: where the link between the two fails and clients still reach both, both become active; and
so they do where words take longer than half a heartbeat. See docs/services.md, *Binary Star*.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final

from pubsub.errors import DecodeError


class Role(Enum):
    """Which of the two servers this is; it never changes while the process lives."""

    PRIMARY = "primary"
    BACKUP = "backup"


class Word(IntEnum):
    """What a server says of itself; the number is the frame's text."""

    PRIMARY = 1
    BACKUP = 2
    ACTIVE = 3
    PASSIVE = 4


class Vote(Enum):
    """A client's request."""

    HEARD = "request"
    """While the other server is heard, or has not had the time to be."""
    SILENT = "vote"
    """While the other server has been silent for two heartbeats."""


Event = Word | Vote

REASONS: Final[dict[Event, str]] = {
    Word.PRIMARY: "the other starts as primary",
    Word.BACKUP: "the other waits as backup",
    Word.ACTIVE: "the other is active",
    Word.PASSIVE: "the other is passive",
    Vote.HEARD: "a client asked",
    Vote.SILENT: "a client asked, and the other is silent",
}
"""Each event as the log has it."""


class State(Enum):
    """What a server is."""

    PRIMARY = "primary, has not seen its backup"
    BACKUP = "backup, has not seen its primary active"
    ACTIVE = "active"
    PASSIVE = "passive"
    LISTENING = "backup, was away"

    @property
    def word(self) -> Word | None:
        """What a server in this state says of itself, None for nothing."""
        return _SAID.get(self)


_SAID: Final = {
    State.PRIMARY: Word.PRIMARY,
    State.BACKUP: Word.BACKUP,
    State.ACTIVE: Word.ACTIVE,
    State.PASSIVE: Word.PASSIVE,
}


TABLE: Final[dict[tuple[State, Event], State]] = {
    (State.PRIMARY, Word.BACKUP): State.ACTIVE,
    (State.PRIMARY, Word.ACTIVE): State.PASSIVE,
    (State.PRIMARY, Word.PASSIVE): State.PRIMARY,
    (State.PRIMARY, Vote.HEARD): State.PRIMARY,
    (State.PRIMARY, Vote.SILENT): State.ACTIVE,
    (State.BACKUP, Word.PRIMARY): State.BACKUP,
    (State.BACKUP, Word.ACTIVE): State.PASSIVE,
    (State.BACKUP, Word.PASSIVE): State.BACKUP,
    (State.BACKUP, Vote.HEARD): State.BACKUP,
    (State.BACKUP, Vote.SILENT): State.BACKUP,
    (State.ACTIVE, Word.PRIMARY): State.ACTIVE,
    (State.ACTIVE, Word.BACKUP): State.ACTIVE,
    (State.ACTIVE, Word.PASSIVE): State.ACTIVE,
    (State.ACTIVE, Vote.HEARD): State.ACTIVE,
    (State.ACTIVE, Vote.SILENT): State.ACTIVE,
    (State.PASSIVE, Word.PRIMARY): State.ACTIVE,
    (State.PASSIVE, Word.BACKUP): State.ACTIVE,
    (State.PASSIVE, Word.ACTIVE): State.PASSIVE,
    (State.PASSIVE, Vote.HEARD): State.PASSIVE,
    (State.PASSIVE, Vote.SILENT): State.ACTIVE,
    (State.LISTENING, Word.PRIMARY): State.LISTENING,
    (State.LISTENING, Word.ACTIVE): State.PASSIVE,
    (State.LISTENING, Word.PASSIVE): State.LISTENING,
    (State.LISTENING, Vote.HEARD): State.LISTENING,
    (State.LISTENING, Vote.SILENT): State.ACTIVE,
}
"""What each event makes of each state; an entry that is missing is the error that both servers say the same."""

PERMISSIONS: Final = frozenset(
    {
        (State.PRIMARY, Word.BACKUP),
        (State.PASSIVE, Word.PRIMARY),
        (State.PASSIVE, Word.BACKUP),
    }
)
"""The entries by which a word makes its hearer active: they count only once it has listened for two heartbeats."""


def anew(role: Role, state: State) -> State:
    """What a server of a role is after it has begun anew in a state."""
    if role is Role.PRIMARY:
        return State.PRIMARY
    return State.BACKUP if state is State.BACKUP else State.LISTENING


def encode_word(word: Word) -> bytes:
    """The one frame by which a server says what it is (the Guide, chapter 4: a decimal number in ASCII)."""
    return b"%d" % word


_WORDS: Final = {encode_word(word): word for word in Word}


def decode_word(frames: Sequence[bytes | memoryview]) -> Word:
    """What the other server said.

    Raises:
        DecodeError: it is not one frame that holds one of the four numbers.
    """
    if len(frames) != 1:
        raise DecodeError(f"a server's state is 1 frame, not {len(frames)}")
    word = _WORDS.get(bytes(frames[0][:2]))
    if word is None:
        raise DecodeError("a server's state is one of 1, 2, 3 and 4")
    return word
