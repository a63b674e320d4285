"""Detects quickly that the primary has failed. Silence towards the standby alone is not enough: the proxies are asked.

The standby *doubts* the primary if the link to it ended, or if the primary was silent for a while. The standby then
looks at the register often. A proxy that receives a question about a store has the store's primary answer
(`proxy.members`). The proxy therefore hears a live primary within a round trip.

The primary is *lost* if a majority of the proxies does not hear it either. A proxy does not hear it in two cases: its
connection to the primary ended, or it asked for as long as `Times.sticky` and received nothing.

A member that does not know the primary looks too: a vote names the last primary and its address. This module decides
when a takeover is tried. It never decides whether a takeover is safe.

The rules are those of docs/explanation/register.md, R2 and R8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub.config.settings import ServerSettings
from pubsub.protocol.register import View, Vote, VoteOutcome
from pubsub.server.standby.election.proposer import possibly_chosen

if TYPE_CHECKING:
    from random import Random

LOOKS_PER_BEAT: Final = 4
"""Looks per heartbeat of the members' link."""


class Times(NamedTuple):
    """The times of a member, all in seconds.

    Attributes:
        heartbeat: interval of the primary's heartbeats to the proxies.
        patience: silence of the primary after which the proxies help any member to replace it.
        beat: interval of heartbeats on the members' own link.
        silence: a standby that acknowledges nothing for this time is dropped.
        switch: maximum duration of a planned switch.
        doubt: silence on the members' link after which a standby asks the proxies.
        take: silence on that link after which a standby takes over, if the proxies do not hear the primary either.
        sticky: a proxy that has heard the primary within this time does not help to replace it.
    """

    heartbeat: float
    patience: float
    beat: float
    silence: float
    switch: float
    doubt: float
    take: float
    sticky: float


def times_of(settings: ServerSettings) -> Times:
    """Compute the times of a member from its settings.

    A primary drops a silent standby a little before the standby would take over, so that the primary goes on serving.
    """
    beat, heartbeat, patience = (
        settings.standby_heartbeat_seconds,
        settings.heartbeat_seconds,
        settings.patience_seconds,
    )
    take = min((settings.liveness + 1) * beat, patience + heartbeat / 2)
    return Times(
        heartbeat,
        patience,
        beat,
        silence=min(settings.liveness * beat, patience) - beat / 2,
        switch=patience,
        doubt=take / 2,
        take=take,
        sticky=take / 2,
    )


class FailureDetector:
    """A standby's watch over its current primary.

    Args:
        majority: number of proxies that are a majority.
        times: of this member.
        random: for tokens.
        now: monotonic seconds; the first look is due at once.
    """

    def __init__(self, majority: int, times: Times, random: Random, now: float) -> None:
        self._majority, self._times, self._random = majority, times, random
        self._ended_at = float("-inf")
        self._look_at = now
        self._token = -1
        self._asked: dict[int, float] = {}
        self._votes: dict[int, Vote] = {}

    def ended(self, now: float) -> None:
        """Record that the link to the primary has ended: its process, its host or the network failed."""
        self._ended_at, self._look_at = now, now

    def _doubts(self, received_at: float, now: float) -> bool:
        return self._ended_at >= received_at or now - received_at > self._times.doubt

    def look(self, received_at: float, now: float, *, known: bool) -> int:
        """Return the token of a look that is due now, 0 if none is due.

        Args:
            received_at: monotonic seconds at which this member last heard the primary.
            now: monotonic seconds.
            known: True if this member knows the primary.
        """
        if not self._doubts(received_at, now):
            self._token = -1
            self._asked, self._votes = {}, {}
            if known:
                return 0
        if now < self._look_at:
            return 0
        self._look_at = now + self._times.beat / LOOKS_PER_BEAT
        if self._token < 0:
            self._token = self._random.getrandbits(62) + 1
        return self._token

    def vote(self, place: int, vote: Vote, now: float) -> None:
        """Record an answer of a proxy. An answer to another question has no effect.

        Args:
            place: index of the proxy.
            vote: as decoded.
            now: monotonic seconds.
        """
        if vote.token == self._token:
            self._asked.setdefault(place, now)
            self._votes[place] = vote

    def lost(self, received_at: float, now: float) -> bool:
        """Return True if a majority of the proxies does not hear the primary. Arguments as for `look`."""
        if not self._doubts(received_at, now) or (
            self._ended_at < received_at and now - received_at <= self._times.take
        ):
            return False
        return sum(self._misses(place, vote, now) for place, vote in self._votes.items()) >= self._majority

    def _misses(self, place: int, vote: Vote, now: float) -> bool:
        """Return True if a proxy has asked the primary for long enough and does not hear it."""
        sticky = self._times.sticky
        return vote.silence_ms < 0 or (vote.silence_ms >= sticky * 1000 and now - self._asked[place] >= sticky)

    def deadline(self, received_at: float, *, known: bool) -> float:
        """Return the time at which `look` has work, in monotonic seconds."""
        if self._ended_at >= received_at or not known:
            return self._look_at
        return max(self._look_at, received_at + self._times.doubt)


class Accepted:
    """The view that each proxy accepted last, as far as this member has received it.

    Args:
        count: number of configured proxies.
        majority: number of proxies that are a majority of `count`.
    """

    def __init__(self, count: int, majority: int) -> None:
        self._count, self._majority = count, majority
        self._said: dict[int, tuple[int, View]] = {}

    def receive(self, place: int, vote: Vote) -> View | None:
        """Record an answer, and return the view that may be in force; None if no proxy has reported a view.

        Args:
            place: index of the proxy. A view that the proxy accepted before it lost its data does not count.
            vote: as decoded.
        """
        if vote.view is not None:
            self._said[place] = vote.ballot, vote.view
        elif vote.outcome is VoteOutcome.NEW:
            self._said.pop(place, None)
        return possibly_chosen(self._said.values(), self._count, self._majority)
