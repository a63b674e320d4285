"""One server of a Binary Star pair: what it is now, what it says and when, and whether it takes a request.

`states` has the table and the reasons; here is its time. The shell hands in what it heard (`hear`), asks for each
request whether it may be taken (`request`), says what is due (`due`), and once more before answers leave asks whether
they still may (`active`), since between a request and its answer the process may have stood still.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pubsub.services.core.binary_star.states import PERMISSIONS, REASONS, TABLE, Event, Role, State, Vote, Word, anew

HEARTBEAT_SECONDS: Final = 1.0
"""The Guide's. Both servers of a pair must have the same."""

WORDS_PER_HEARTBEAT: Final = 2
"""Words said in a heartbeat. The Guide's servers say one; with two a server may stand still for a whole heartbeat."""

SILENCE_HEARTBEATS: Final = 2.0
"""Heartbeats without a word after which the other server counts as dead, and which one that has begun listens for."""

LEASE_HEARTBEATS: Final = 1.5
"""Heartbeats since its own last turn after which a server takes it that it was given up."""


class Turn(NamedTuple):
    """A change of what a server is, for the log.

    Attributes:
        before, after: the states.
        why: the event, or why it began anew.
        wrong: something is wrong: it stood still, or both say the same.
    """

    before: State
    after: State
    why: str
    wrong: bool = False


class BinaryStar:
    """One server's part in its pair.

    Args:
        role: which of the two it is.
        now: monotonic seconds.
        heartbeat: seconds; the same at both servers.

    Attributes:
        state: what it is.
        turns: changes of `state` that nobody has taken out yet; `take_turns`.
        conflicts: how often both servers said the same.
        stalls: how often this one stood still for too long.
    """

    def __init__(self, role: Role, now: float, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self.role = role
        self.state = State.PRIMARY if role is Role.PRIMARY else State.BACKUP
        self.conflicts = self.stalls = 0
        self.turns: list[Turn] = []
        self._interval = heartbeat / WORDS_PER_HEARTBEAT
        self._silence = heartbeat * SILENCE_HEARTBEATS
        self._lease = heartbeat * LEASE_HEARTBEATS
        self._began = self._turned = now
        self._heard = float("-inf")
        self._said: State | None = None

    def hear(self, word: Word, now: float) -> None:
        """The other server said what it is."""
        self._notice_stall(now)
        self._heard = now
        # Until it has listened for long enough, a word may be meant for its life before this one.
        if (self.state, word) not in PERMISSIONS or now >= self._began + self._silence:
            self._take(word, now)

    def request(self, now: float) -> bool:
        """A client asks for something; whether that is to be taken. Where not, it is dropped: the client asks again."""
        self._notice_stall(now)
        self._take(Vote.SILENT if now >= self.silent_at() else Vote.HEARD, now)
        return self.state is State.ACTIVE

    def active(self, now: float) -> bool:
        """Whether what was asked may be done, and what was done be answered."""
        self._notice_stall(now)
        return self.state is State.ACTIVE

    def due(self, now: float) -> Word | None:
        """What to say now, None for nothing. It is said at once where it has changed, and twice in a heartbeat."""
        self._notice_stall(now)
        if self._said is self.state and now < self._turned + self._interval:
            return None
        self._said, self._turned = self.state, now
        return self.state.word

    def deadline(self) -> float:
        """When `due` is to be asked again."""
        return self._turned if self._said is not self.state else self._turned + self._interval

    def silent_at(self) -> float:
        """When the other server counts as silent if it says nothing more."""
        return max(self._heard, self._began) + self._silence

    def lapses_at(self) -> float:
        """When it takes it that it was given up, if it does not turn before."""
        return self._turned + self._lease

    def take_turns(self) -> list[Turn]:
        """What has changed since this was asked last."""
        turns, self.turns = self.turns, []
        return turns

    def _notice_stall(self, now: float) -> None:
        if now >= self.lapses_at():
            self.stalls += 1
            self._begin_anew(now, "this process stood still")

    def _take(self, event: Event, now: float) -> None:
        after = TABLE.get((self.state, event))
        if after is None:
            self.conflicts += 1
            self._begin_anew(now, f"the other says the same: {self.state.value}")
        else:
            self._become(after, REASONS[event])

    def _begin_anew(self, now: float, why: str) -> None:
        self._began = self._turned = now
        self._become(anew(self.role, self.state), why, wrong=True)

    def _become(self, after: State, why: str, *, wrong: bool = False) -> None:
        if wrong or after is not self.state:
            self.turns.append(Turn(self.state, after, why, wrong))
            self.state = after
