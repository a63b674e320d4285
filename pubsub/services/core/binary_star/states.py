"""The states of the two servers of a Binary Star pair, as a table of state and event.

Two servers, a primary and a backup, send each other their state again and again: one ASCII frame, `1` to `4`. One of
them is active and takes requests. The other is passive and takes none. It becomes active when the active server has
been silent for two heartbeats *and* a client asks it. Neither the silence nor the request alone is enough. The request
is the client's *vote*: the clients are the third party that two servers lack. A primary that starts listens for two
heartbeats, in case a backup has taken its place. A backup that starts takes nothing until it has seen an active
primary.

These are the Guide's rules (chapter 4, *High-Availability Pair*). The Guide's table lets both servers be active at once
in two cases without any network fault: a process must only die, or be paused. The additions here exist for these two
cases. None of them shows on the wire.

**A message that outlives its sender.** An active primary sends `3`, dies, and starts again before that `3` has arrived.
The backup has just started and sends `2`: "I am not active until I see you active". Then the `3` of the old life
arrives and releases the backup from its promise. The `1` of the new life makes the backup active, and the `2` makes the
new life active. A second frame with the number of the life would solve this, but would break the Guide's programs. A
wait solves it instead: a message that makes its receiver active (`PERMISSIONS` below) counts only after the receiver
has listened for two heartbeats. By then every message of its earlier life has arrived or is lost. A `2` that comes
later is meant for this life.

**A server that is paused.** An active server is stopped for a while and does not know it. Causes are a signal, a
suspended machine, or a machine that swaps. The backup takes over. The first server then reads the requests that wait in
its socket before it reads the backup's `3`. Its clock shows the pause: a server may have been given up if it has sent
no state message for a heartbeat and a half. It *begins anew*: it takes the state that it would have after a restart,
and listens again for two heartbeats. Half a heartbeat remains for its last message to arrive. That is the delay which
the pair allows its network.

A primary begins anew as PRIMARY. A backup that has been active or passive must not begin anew as BACKUP: it would take
nothing while the primary is dead. It becomes LISTENING, and sends nothing. It does not send `4`, which two passive
servers would take for an error. It does not send `2`, because it may become active before it sees an active primary. If
it receives nothing for two heartbeats, a vote makes it active.

A missing entry is the error that both servers report the same state: two are active, two are passive, or both were
started as primary. The Guide's processes then end, and somebody must start them again. These two begin anew at once,
with an error in the log. The effect is the same, without an operator.

No such table can prevent this: if the link between the servers fails and clients still reach both, both become active.
The same happens if state messages take longer than half a heartbeat. See docs/services.md, *Binary Star*.

The rules are those of docs/explanation/services-engine.md, E11 and E12.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Final

from pubsub.errors import DecodeError


class Role(Enum):
    """The role of a server, fixed while the process lives."""

    PRIMARY = "primary"
    BACKUP = "backup"


class Word(IntEnum):
    """The state that a server sends; the number is the text of the frame."""

    PRIMARY = 1
    BACKUP = 2
    ACTIVE = 3
    PASSIVE = 4


class Vote(Enum):
    HEARD = "request"
    """A request while the other server is not silent, or has had no time to send a message."""
    SILENT = "vote"
    """A request while the other server has been silent for two heartbeats."""


Event = Word | Vote

REASONS: Final[dict[Event, str]] = {
    Word.PRIMARY: "the other starts as primary",
    Word.BACKUP: "the other waits as backup",
    Word.ACTIVE: "the other is active",
    Word.PASSIVE: "the other is passive",
    Vote.HEARD: "a client asked",
    Vote.SILENT: "a client asked, and the other is silent",
}
"""The log's text for each event."""


class State(Enum):
    PRIMARY = "primary, has not seen its backup"
    BACKUP = "backup, has not seen its primary active"
    ACTIVE = "active"
    PASSIVE = "passive"
    LISTENING = "backup, listens after a pause"

    @property
    def word(self) -> Word | None:
        """The state message of this state; None: it sends none."""
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
"""State and event -> next state. A missing entry is the error that both servers report the same state."""

PERMISSIONS: Final = frozenset(
    {
        (State.PRIMARY, Word.BACKUP),
        (State.PASSIVE, Word.PRIMARY),
        (State.PASSIVE, Word.BACKUP),
    }
)
"""Entries by which a message makes its receiver active. They count only after it has listened for two heartbeats."""


def anew(role: Role, state: State) -> State:
    """Return the state of a server after it has begun anew."""
    if role is Role.PRIMARY:
        return State.PRIMARY
    return State.BACKUP if state is State.BACKUP else State.LISTENING


def encode_word(word: Word) -> bytes:
    """Return the frame of a state message (the Guide, chapter 4: a decimal number in ASCII)."""
    return b"%d" % word


_WORDS: Final = {encode_word(word): word for word in Word}


def decode_word(frames: Sequence[bytes | memoryview]) -> Word:
    """Return the state in a message of the other server.

    Raises:
        DecodeError: the message is not one frame with one of the four numbers.
    """
    if len(frames) != 1:
        raise DecodeError(f"a state message has 1 frame, not {len(frames)}")
    word = _WORDS.get(bytes(frames[0][:2]))
    if word is None:
        raise DecodeError("a state message is 1, 2, 3 or 4")
    return word
