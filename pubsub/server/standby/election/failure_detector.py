"""How a standby sees soon that its primary is gone, and never because it does not hear it itself: proxies are asked.

The primary is *doubted* where the link to it ended, or where it said nothing for a while. From then on the register is
looked at often. A proxy that is asked about a store has the store's primary answer (`proxy.members`), so a primary that
lives is heard there within a round trip. It is *lost* where a majority of the proxies does not hear it either: the
connection to them ended, or they asked it for as long as `Times.sticky` and heard nothing.

A member that does not know who is primary looks too: a vote names who was last, and where. What is decided here is when
something is tried, and never what is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pubsub.config.settings import ServerSettings
from pubsub.protocol.register import View, Vote, VoteOutcome
from pubsub.server.standby.election.proposer import possibly_chosen

if TYPE_CHECKING:
    from random import Random

LOOKS_PER_BEAT: Final = 4
"""Looks in the time of one heartbeat of the members' link."""


class Times(NamedTuple):
    """The times of a member, all of them in seconds.

    Attributes:
        heartbeat: between a primary's signs of life to the proxies.
        patience: silence after which proxies help to replace it, whoever asks.
        beat: between two heartbeats of the members' own link.
        silence: how long a standby may acknowledge nothing before it is dropped.
        switch: how long a planned change may take.
        doubt: silence on the members' link after which a standby asks the proxies.
        take: the same after which it takes over where they do not hear the primary either.
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
    """The times of a member with these settings.

    A primary drops a silent standby a little before that one would take over, so that it is the one who is served.
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


class Watch:
    """One standby's watch of one primary after the other.

    Args:
        majority: of the proxies.
        times: the member's.
        random: for tokens.
        now: monotonic seconds; it looks at once.
    """

    def __init__(self, majority: int, times: Times, random: Random, now: float) -> None:
        self._majority, self._times, self._random = majority, times, random
        self._ended_at = float("-inf")
        self._look_at = now
        self._token = -1
        self._asked: dict[int, float] = {}
        self._votes: dict[int, Vote] = {}

    def ended(self, now: float) -> None:
        """The link to the primary has ended: its process has, or its host, or the way to it."""
        self._ended_at, self._look_at = now, now

    def _doubts(self, heard: float, now: float) -> bool:
        return self._ended_at >= heard or now - heard > self._times.doubt

    def look(self, heard: float, now: float, *, known: bool) -> int:
        """The token of a look that is due now, 0 for none.

        Args:
            heard: when the primary was heard last, by this member.
            now: monotonic seconds.
            known: whether this member knows who is primary.
        """
        if not self._doubts(heard, now):
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
        """An answer of a proxy, to whatever; those to others' questions do nothing.

        Args:
            place: which proxy.
            vote: as decoded.
            now: monotonic seconds.
        """
        if vote.token == self._token:
            self._asked.setdefault(place, now)
            self._votes[place] = vote

    def lost(self, heard: float, now: float) -> bool:
        """Whether the primary is gone, as far as a majority of the proxies can tell. Arguments as for `look`."""
        if not self._doubts(heard, now) or (self._ended_at < heard and now - heard <= self._times.take):
            return False
        return sum(self._misses(place, vote, now) for place, vote in self._votes.items()) >= self._majority

    def _misses(self, place: int, vote: Vote, now: float) -> bool:
        """Whether a proxy does not hear the primary, though it has asked it for long enough."""
        sticky = self._times.sticky
        return vote.silence_ms < 0 or (vote.silence_ms >= sticky * 1000 and now - self._asked[place] >= sticky)

    def deadline(self, heard: float, *, known: bool) -> float:
        """When `look` has something to do (monotonic seconds)."""
        if self._ended_at >= heard or not known:
            return self._look_at
        return max(self._look_at, heard + self._times.doubt)


class Accepted:
    """What each proxy has accepted last, as far as it has told.

    Args:
        count: proxies that are configured.
        majority: of them.
    """

    def __init__(self, count: int, majority: int) -> None:
        self._count, self._majority = count, majority
        self._said: dict[int, tuple[int, View]] = {}

    def hear(self, place: int, vote: Vote) -> View | None:
        """The view that may be in force, now that a proxy has said this; None where nobody has told of any.

        Args:
            place: which proxy. What it had accepted before it lost its data does not count.
            vote: as decoded.
        """
        if vote.view is not None:
            self._said[place] = vote.ballot, vote.view
        elif vote.outcome is VoteOutcome.NEW:
            self._said.pop(place, None)
        return possibly_chosen(self._said.values(), self._count, self._majority)
