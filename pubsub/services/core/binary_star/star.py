"""One server of a Binary Star pair: its state, its state messages and their times, and whether it takes a request.

`states` has the table and the reasons; this module adds the time. The shell passes in each state message (`receive`),
asks for each request whether it is taken (`request`), and sends the `due` one. Before replies leave it asks once more
(`active`), since the process may have been paused between a request and its reply.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pubsub.services.core.binary_star.states import PERMISSIONS, REASONS, TABLE, Event, Role, State, Vote, Word, anew

HEARTBEAT_SECONDS: Final = 1.0
"""The Guide's value. Both servers of a pair must have the same."""

WORDS_PER_HEARTBEAT: Final = 2
"""State messages per heartbeat; the Guide's servers send one. With two, a pause of one heartbeat does no harm."""

SILENCE_HEARTBEATS: Final = 2.0
"""Heartbeats of silence after which the other server counts as dead. A server that has started listens for as long."""

LEASE_HEARTBEATS: Final = 1.5
"""Heartbeats since its own last state message after which a server assumes that the other has given it up."""


class Turn(NamedTuple):
    """A change of state, for the log.

    Attributes:
        why: the event, or the reason to begin anew.
        wrong: the change is an error: this server was paused, or both reported the same state.
    """

    before: State
    after: State
    why: str
    wrong: bool = False


class BinaryStar:
    """The part of one server in its pair.

    Args:
        role: the role of this server.
        now: monotonic seconds.
        heartbeat: seconds, the same at both servers.

    Attributes:
        turns: state changes that `take_turns` has not returned yet.
        conflicts: how often both servers reported the same state.
        stalls: how often this server was paused for too long.
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

    def receive(self, word: Word, now: float) -> None:
        """Receive a state message of the other server."""
        self._notice_stall(now)
        self._heard = now
        # An earlier message may answer this server's previous life.
        if (self.state, word) not in PERMISSIONS or now >= self._began + self._silence:
            self._take(word, now)

    def request(self, now: float) -> bool:
        """Return whether to take a client's request. A refused request is dropped, and the client repeats it."""
        self._notice_stall(now)
        self._take(Vote.SILENT if now >= self.silent_at() else Vote.HEARD, now)
        return self.state is State.ACTIVE

    def active(self, now: float) -> bool:
        """Return whether requests may be done and replies may be sent."""
        self._notice_stall(now)
        return self.state is State.ACTIVE

    def due(self, now: float) -> Word | None:
        """Return the state message to send now, or None: one at each change, and two per heartbeat."""
        self._notice_stall(now)
        if self._said is self.state and now < self._turned + self._interval:
            return None
        self._said, self._turned = self.state, now
        return self.state.word

    def deadline(self) -> float:
        """Time at which `due` has the next message."""
        return self._turned if self._said is not self.state else self._turned + self._interval

    def silent_at(self) -> float:
        """Time at which the other server counts as silent if no more messages come."""
        return max(self._heard, self._began) + self._silence

    def lapses_at(self) -> float:
        """Time at which this server must assume that it was given up, if it sends nothing before."""
        return self._turned + self._lease

    def take_turns(self) -> list[Turn]:
        """Return the state changes since the last call."""
        turns, self.turns = self.turns, []
        return turns

    def _notice_stall(self, now: float) -> None:
        if now >= self.lapses_at():
            self.stalls += 1
            self._begin_anew(now, "this process was paused")

    def _take(self, event: Event, now: float) -> None:
        after = TABLE.get((self.state, event))
        if after is None:
            self.conflicts += 1
            self._begin_anew(now, f"the other reports the same state: {self.state.value}")
        else:
            self._become(after, REASONS[event])

    def _begin_anew(self, now: float, why: str) -> None:
        self._began = self._turned = now
        self._become(anew(self.role, self.state), why, wrong=True)

    def _become(self, after: State, why: str, *, wrong: bool = False) -> None:
        if wrong or after is not self.state:
            self.turns.append(Turn(self.state, after, why, wrong))
            self.state = after
