"""Keep a client's patterns of topics: the wish, its confirmation by every proxy, and the topics that match.

A pattern is durable before it is sent. It is settled once each configured proxy has answered. Then proxies are asked
for the topics that match, again and again: the answer waits at the proxy until there is a new topic. The client joins
each of these topics under its own ID and a number of its own. From then on the topic is subscribed like any other. A
topic that the client hears of late has lost nothing, because its server keeps the messages since the pattern.

The rules are those of docs/explanation/families.md, FA2, FA5 and FA6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from pubsub.client.core.changes import Change, DeadLettered, Intended, PatternConfirmed, PatternIntended
from pubsub.client.core.effects import Due, Outgoing
from pubsub.client.core.intent import NEVER
from pubsub.client.core.rights import refusal
from pubsub.errors import DataLoss, PubsubError, Superseded
from pubsub.protocol import Outcome, Status
from pubsub.protocol.families import Matching, Pattern
from pubsub.protocol.names import is_topic
from pubsub.protocol.patterns import matches

if TYPE_CHECKING:
    from pubsub.client.core.core import ClientCore

_log: Final = logging.getLogger("pubsub.client")

PATTERN_TOPICS_MAX: Final = 1_000
"""Most topics that a client joins by its patterns. Servers keep the messages of the others."""

NEAR_PERCENT: Final = 90
"""Percent of `PATTERN_TOPICS_MAX` at which the log has a warning."""

NEAR: Final = (
    "client %s: its patterns have brought %d topics; beyond %d it joins no more: use another client for a part"
)
LEFT_OUT: Final = (
    "client %s: %s matches more topics than it may join, %d for all its patterns; servers keep the messages of the"
    " others: use a pattern that matches less, or another client for a part"
)

ENDED: Final = "an operator, or another process of this client, has ended the pattern"

LIST_SECONDS: Final = 10.0
"""Time for which a proxy may hold the question about matching topics."""

TRY_SECONDS: Final = 1.0
"""Time for a proxy to answer, and between two tries."""


LEAVE_SECONDS: Final = 0.1
"""Time until the next look for a topic that the client is leaving at present."""


class Family:
    """One pattern.

    Attributes:
        on: the application's wish.
        number: of the wish.
        settled: True if every proxy has confirmed it.
        stamp: messages with an earlier timestamp are not received; known once it is settled.
        have: by proxy the stamp of its confirmation, since the application last asked.
        higher: a higher number that a proxy knows; 0: none.
        version: rises with each topic that is joined.
        answered_at: time of the last answer to the question about matching topics.
        left_out: True if there are more matching topics than the client may join.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.on = self.settled = self.left_out = False
        self.number = self.stamp = self.higher = self.version = self.known = 0
        self.have: dict[int, int] = {}
        self.topics: list[str] = []
        """Topics with a subscription, or an ended one, that match."""
        self.listed = 0
        """The number of subscriptions when they were listed."""
        self.failure: PubsubError | None = None
        self.trouble = ""
        self.until = self.want_until = self.answered_at = NEVER
        self.retry_at: dict[int, float] = {}
        self.list_at = NEVER
        """Time of the next question about matching topics."""

    def begin(self, on: bool, number: int, stamp: int) -> None:
        """Accept a durable wish."""
        self.on, self.number, self.settled, self.stamp, self.higher, self.known = on, number, False, stamp, 0, 0
        self.have, self.retry_at, self.failure, self.trouble = {}, {}, None, ""

    def confirmed(self, stamp: int) -> None:
        """Accept the commit of the confirmation by all proxies."""
        self.settled, self.stamp, self.list_at = True, stamp, NEVER


class Families:
    """All patterns of a client.

    Args:
        core: sends for them, and has the subscriptions of the topics.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self.by_pattern: dict[str, Family] = {}
        self._flights: dict[int, tuple[Family, int, int]] = {}
        """By token: family, number, and the proxy; -1: a question about matching topics."""

    # State

    def load(self, rows: Iterable[tuple[str, bool, bool, int, int]], joined: Iterable[tuple[str, int]]) -> None:
        """Load patterns in the form of `Store.patterns`, and joined topics with the number of their pattern."""
        for pattern, on, settled, number, stamp in rows:
            family = self.by_pattern[pattern] = Family(pattern)
            family.begin(on, number, stamp)
            if settled:
                family.confirmed(stamp)
        for topic, number in joined:
            self._core.subscription(topic).joined = number

    def get(self, pattern: str) -> Family | None:
        return self.by_pattern.get(pattern)

    def live(self) -> list[Family]:
        """Return the patterns that are on."""
        return [family for family in self.by_pattern.values() if family.on]

    def matching(self, topic: str) -> list[Family]:
        """Return the patterns that are on and match a topic."""
        return [family for family in self.live() if matches(family.pattern, topic)]

    def topics(self, family: Family) -> list[str]:
        """Return the topics that match a pattern and are subscribed, or were left with a loss to tell."""
        known = self._core.subscriptions
        if family.listed != len(known):  # A topic that is known once stays known.
            family.listed = len(known)
            family.topics = [topic for topic in known if matches(family.pattern, topic)]
        return [topic for topic in family.topics if known[topic].intent.on or known[topic].has_news]

    # Calls

    def plan(self, pattern: str, on: bool, *, fresh: bool = False, stamp: int = 0) -> tuple[PatternIntended, list[str]]:
        """Return the change that makes a wish durable, and the joined topics to leave; `planned` follows the commit.

        Args:
            stamp: as in `PatternIntended`.
            fresh: leave the topics of an earlier wish for the pattern; those with messages since then are joined anew.
        """
        left = self._only_by(pattern) if fresh or not on else []
        return PatternIntended(pattern, on, self._core.numbers.take(), stamp), left

    def _only_by(self, pattern: str) -> list[str]:
        """Return the joined topics that this pattern alone brings."""
        others = [family for family in self.live() if family.pattern != pattern]
        return [
            topic
            for topic, sub in self._core.subscriptions.items()
            if sub.joined and sub.intent.on and matches(pattern, topic)
            if not any(matches(other.pattern, topic) for other in others)
        ]

    def renewal(self) -> list[PatternIntended]:
        """Return the changes that begin each pattern anew, from now on; `planned` follows the commit.

        With its old time a copied directory would join topics that began since, and receive messages that the original
        has handled.
        """
        for family in self.live():
            if family.higher:
                self._core.numbers.reopen(family.higher)
        return [self.plan(family.pattern, True, fresh=True)[0] for family in self.live()]

    def planned(self, change: PatternIntended, left: Iterable[str], until: float) -> Family:
        """Accept the commit of `plan`."""
        family = self.by_pattern.setdefault(change.pattern, Family(change.pattern))
        family.begin(change.on, change.number, change.stamp)
        self._leave(left, until)
        return family

    def _leave(self, topics: Iterable[str], until: float) -> None:
        for topic in topics:
            sub = self._core.subscriptions[topic]
            sub.joined = 0
            sub.intended(False)
            self._core.settle(sub, until)

    def losses(self, left: Iterable[str]) -> tuple[list[DeadLettered], list[DataLoss]]:
        """Return the losses of topics to leave whose pattern was ended: what waited in them was given up."""
        wall = self._core.wall()
        found = [self._core.subscriptions[topic].given_up(wall) for topic in left]
        return [change for change, _ in found], [error for _, error in found]

    def settle(self, family: Family, until: float) -> None:
        """Ask every proxy, until `until`, to confirm the wish."""
        family.until = max(family.until, until)
        family.have, family.retry_at = {}, {}

    def ask_again(self, until: float) -> None:
        """Ask, at a start, about each wish that is not settled."""
        for family in self.by_pattern.values():
            if not family.settled:
                self.settle(family, until)

    def want(self, family: Family, until: float) -> None:
        """Ask for matching topics, until `until`."""
        family.want_until = max(family.want_until, until)
        if not family.settled:
            family.until = max(family.until, until)

    def list_anew(self, topic: str) -> None:
        """Have the proxies name all matching topics again: this one is left, and may begin anew."""
        for family in self.matching(topic):
            family.known = 0

    # Sending

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return the messages to send now."""
        out: list[Outgoing] = []
        for family in self.by_pattern.values():
            if family.failure is not None:
                continue
            if now < family.until:
                for proxy in range(self._core.settings.proxies):
                    if proxy not in family.have and family.retry_at.get(proxy, NEVER) <= now:
                        family.retry_at[proxy] = now + TRY_SECONDS
                        out.append(Outgoing(self._token(family, proxy), proxy, self._pattern(family)))
            if family.on and family.settled and now < family.want_until and family.list_at <= now:
                if family.list_at != NEVER and family.answered_at < now - LIST_SECONDS:
                    self._core.proxy = self._core.refusing.open_from(
                        (self._core.proxy + 1) % self._core.settings.proxies
                    )
                family.list_at = now + LIST_SECONDS + TRY_SECONDS
                wait = int(LIST_SECONDS * 1000)
                question = Matching(self._core.settings.client, family.pattern, family.known, wait)
                out.append(Outgoing(self._token(family, -1), self._core.proxy, question))
        return out

    def _pattern(self, family: Family) -> Pattern:
        stamp = min(family.have.values(), default=family.stamp)
        return Pattern(self._core.settings.client, family.pattern, family.number, stamp, int(not family.on))

    def _token(self, family: Family, proxy: int) -> int:
        token = self._core.flights.take_token()
        self._flights[token] = family, family.number, proxy
        same = [one for one, flight in self._flights.items() if flight == (family, family.number, proxy)]
        for older in same[:-2]:
            del self._flights[older]
            self._core.flights.forgotten.append(older)
        return token

    def deadline(self, now: float) -> float:
        """Return the next time at which `outgoing` has work."""
        times = [float("inf")]
        for family in self.by_pattern.values():
            if family.failure is not None:
                continue
            if now < family.until:
                missing = [proxy for proxy in range(self._core.settings.proxies) if proxy not in family.have]
                times += [family.retry_at.get(proxy, now) for proxy in missing]
            if family.on and family.settled and now < family.want_until:
                times.append(max(now, family.list_at))
        return min(times)

    # Answers

    def receive(self, token: int, status: Status, now: float) -> bool:
        """Handle the answer to a message sent with `token`; return False if the message was not sent from here."""
        flight = self._flights.pop(token, None)
        if flight is None:
            return False
        family, number, proxy = flight
        if number == family.number and proxy < 0:
            self._listed(family, status, now)
        elif number == family.number:
            self._answered(family, status, proxy, now)
        return True

    def _answered(self, family: Family, status: Status, proxy: int, now: float) -> None:
        if status.outcome is Outcome.SUCCESS:
            family.have[proxy] = status.stamp
            if len(family.have) == self._core.settings.proxies:
                stamp = min(family.have.values())
                change = PatternConfirmed(family.pattern, stamp)
                self._core.due.append(Due([change], partial(family.confirmed, stamp)))
        elif status.outcome is Outcome.SUPERSEDED:
            family.higher = status.number
            family.failure = Superseded(self._core.settings.client, family.pattern)
        elif status.outcome in {Outcome.REFUSED, Outcome.DENIED}:
            word = "subscribe" if family.on else "unsubscribe"
            family.failure = refusal(self._core.settings.client, word, family.pattern, status)
        else:
            family.trouble = status.reason.replace("_", " ") or status.outcome.value
            family.retry_at[proxy] = now + TRY_SECONDS

    def _ended(self, family: Family, number: int, now: float) -> None:
        """Leave the topics of a pattern that was ended elsewhere: nothing may wait for this client there."""
        core, left = self._core, self._only_by(family.pattern)
        given_up = [dropped for topic in left for dropped in core.waiting.dropping(topic)]

        def ended() -> None:
            family.higher, family.failure = number, Superseded(core.settings.client, family.pattern, ENDED)
            for dropped in given_up:
                core.waiting.drop(dropped.topic)
            self._leave(left, now + LIST_SECONDS)

        core.due.append(Due([*(Intended(topic, False) for topic in left), *given_up], ended))

    def _listed(self, family: Family, status: Status, now: float) -> None:
        if status.outcome is Outcome.SUPERSEDED and status.number >= family.number:
            self._ended(family, status.number, now)
            return
        if status.outcome not in {Outcome.SUCCESS, Outcome.EMPTY}:
            family.trouble = status.reason.replace("_", " ") or status.outcome.value
            family.list_at = now + TRY_SECONDS
            return
        family.answered_at, family.list_at, family.trouble = now, NEVER, ""
        if status.outcome is Outcome.SUCCESS and family.on and family.settled:
            family.known = status.checksum
            text = bytes(status.body).decode("ascii", "replace")
            self._join(family, [topic for topic in text.split(" ") if is_topic(topic)], now)

    def _join(self, family: Family, topics: list[str], now: float) -> None:
        """Subscribe to matching topics that are new here, each from the first of the stamps of its patterns on."""
        core = self._core
        known = core.subscriptions
        fresh = [topic for topic in topics if topic not in known or not known[topic].intent.on]
        leaving = [topic for topic in fresh if topic in known and not known[topic].intent.settled]
        if leaving:  # An answer to the request to leave may be here and wait for its commit: ask again after it.
            fresh = [topic for topic in fresh if topic not in leaving]
            family.known, family.list_at = 0, now + LEAVE_SECONDS
            for topic in leaving:  # No call may wait for that answer any more.
                core.settle(known[topic], max(family.want_until, now + TRY_SECONDS))
        joined_before = sum(sub.joined > 0 and sub.intent.on for sub in known.values())
        room = max(0, PATTERN_TOPICS_MAX - joined_before)
        near, left_out = PATTERN_TOPICS_MAX * NEAR_PERCENT // 100, len(fresh) > room
        if left_out and not family.left_out:
            _log.warning(LEFT_OUT, core.settings.client, family.pattern, PATTERN_TOPICS_MAX)
        elif joined_before < near <= joined_before + len(fresh):
            _log.warning(NEAR, core.settings.client, joined_before + len(fresh), PATTERN_TOPICS_MAX)
        family.left_out, fresh = left_out, fresh[:room]
        if not fresh:
            return
        changes: list[Change] = []
        for topic in fresh:
            stamp = min(one.stamp for one in self.matching(topic) if one.settled)
            changes.append(Intended(topic, True, True, stamp, pattern=family.number))

        def joined() -> None:
            for change in changes:
                assert isinstance(change, Intended)
                sub = core.subscription(change.topic)
                sub.joined = change.pattern
                sub.intended(True, fresh=True, start=change.start)
                core.settle(sub, max(family.want_until, now + TRY_SECONDS))
            for one in self.live():
                one.version += 1

        core.due.append(Due(changes, joined))
