"""Subscriptions, and handing out: SUBSCRIBE, UNSUBSCRIBE, GET, and the GETs that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pubsub.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Get, Outcome, Subscribe, Unsubscribe
from pubsub.server import changes as c
from pubsub.server.delivery import Answer, collect
from pubsub.server.givenup import ends_unknown
from pubsub.server.legs import Leg
from pubsub.server.links import Origin
from pubsub.server.polls import Poll
from pubsub.server.topic import Entry, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

DELIVERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes handed out in one loop; who waits for more is served in the next."""


class Gets:
    """The subscribers of one server.

    Args:
        core: the server.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._delivered_bytes = 0

    def subscribe(self, origin: Origin, request: Subscribe | Unsubscribe, now: float) -> None:
        """SUBSCRIBE and UNSUBSCRIBE of a client's own subscription."""
        core = self._core
        topic = core.topics.get(request.topic)
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        if not request.number:
            core.refuse(origin, "number is 0", now)
            return
        obstacle = ""
        if core.full and (isinstance(request, Subscribe) or topic is None or request.sender not in topic.entries):
            obstacle = "disk"  # To leave is let through: it frees what was waiting.
        elif topic is None and len(core.topics) >= core.settings.topics_max:
            obstacle = "topics_max"
        elif topic and request.sender not in topic.entries and len(topic.entries) >= core.settings.subscribers_max:
            obstacle = "subscribers_max"
        if obstacle:
            core.answer(origin, Outcome.FULL, reason=obstacle)
            return
        topic = topic or core.create(request.topic)
        since = core.stamps.reading(now) - int(core.settings.skew_seconds * MICROSECONDS)
        outcome, entry, changed = topic.subscribe(
            request.sender, request.number, request.opening, isinstance(request, Subscribe), max(0, since)
        )
        if changed:
            core.marks.entry(topic.name, request.sender)
            self.end_outdated_poll(topic.name, request.sender)
        core.answer(
            origin,
            outcome,
            position=entry.acknowledged,
            number=entry.number,
            opening=entry.opening,
            log=topic.open.id,
        )

    def get(self, origin: Origin, get: Get, now: float, whole: bool = False) -> None:
        """GET of a client's own subscription.

        Args:
            whole: every proxy has answered, for this very request, that no other server holds the topic.
        """
        core = self._core
        topic = core.topics.get(get.topic)
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        if core.given_up.place(origin, get, topic, whole):
            return
        entry = topic.entries.get(get.sender) if topic else None
        if topic is None or entry is None or get.number > entry.number:
            core.answer(origin, Outcome.UNKNOWN, reason="topic" if topic is None else "subscription")
            return
        if _is_outdated(get, entry):
            core.answer(origin, Outcome.SUPERSEDED, log=topic.open.id, **_newer(entry))
            return
        if not entry.on:
            core.answer(origin, Outcome.UNKNOWN, reason="not_subscribed", log=topic.open.id)
            return
        if get.opening > entry.opening:
            entry.opening = get.opening
            core.marks.entry(topic.name, get.sender)
        sound, changed = topic.acknowledge(entry, get.last)
        if not sound:
            core.counters["positions behind"] += 1
            core.answer(origin, Outcome.BEHIND, position=entry.acknowledged, log=topic.open.id)
            return
        if changed:
            core.marks.acknowledged(topic.name, get.sender, now)
        if get.records_max == 0:
            core.answer(origin, Outcome.EMPTY, log=topic.open.id)
            return
        expires = now + min(get.wait_ms / 1000, core.settings.wait_seconds_max)
        core.polls.park(Poll(origin, get, expires, whole=whole))

    def deliver(self, now: float) -> None:
        """Serve the parked GETs for which there is something, after this loop's changes are in the store."""
        core = self._core
        self._delivered_bytes = 0
        core.named.deliver()
        for name, polls in core.polls.ready():
            topic = core.topics.get(name)
            joined: dict[tuple[object, ...], Answer] = {}
            for poll in polls:
                entry = topic.entries.get(poll.get.sender) if topic else None
                if topic is None or entry is None or poll.get.number > entry.number or not entry.on:
                    self._end(poll, Outcome.UNKNOWN, reason="subscription")
                elif _is_outdated(poll.get, entry):  # A later opening was heard of while it waited.
                    self._end(poll, Outcome.SUPERSEDED, **_newer(entry))
                elif self._delivered_bytes >= DELIVERED_BYTES_MAX:
                    core.polls.look_again(name)
                else:
                    self._serve(poll, topic, entry, joined, now)

    def _serve(
        self, poll: Poll, topic: Topic, entry: Entry, joined: dict[tuple[object, ...], Answer], now: float
    ) -> None:
        """Answer a poll, if there is something to say.

        Args:
            joined: answers of this loop for the same legs, so that many who read along are served by one join.
        """
        core = self._core
        get, settings = poll.get, core.settings
        legs = topic.reading(entry, get.last if get.after is None else get.after)
        if legs is None:
            self._end(poll, Outcome.BEHIND, position=entry.acknowledged, log=topic.open.id)
            return
        if poll.walked is not None and poll.walked[0] is entry.legs:
            legs = poll.walked[1]
        records = min(get.records_max, settings.answer_records_max)
        size = min(get.bytes_max or settings.answer_bytes_max, settings.answer_bytes_max)
        key = (legs, records, size)
        answer = joined.get(key)
        if answer is None:
            try:
                answer = joined[key] = collect(topic, legs, core.reader, core.publishers.names, records, size)
            except StoreDamaged:
                core.found_damaged(topic)
                self._end(poll, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
                return
            core.marks.rows += [c.BatchQuarantined(log, offset) for log, offset in answer.damaged]
            core.counters["damaged batches"] += len(answer.damaged)
            self._delivered_bytes += len(answer.body)
        if answer.rest is not None and answer.rest != legs:
            self._pass(poll, topic, entry, legs, answer.rest, now)
            if topic.waiting(answer.rest):  # It was as much as one loop looks at: the next one goes on.
                core.polls.look_again(get.topic)
                return
        if answer.outcome is Outcome.EMPTY and poll.expires > now:
            poll.whole = False  # That was so in this loop; what is found lost later is asked about anew.
            return
        unsure = answer.outcome is Outcome.LOST and answer.last is not None and ends_unknown(topic, answer.last)
        if unsure and not poll.whole:
            core.polls.take(get.topic, get.sender)
            if not core.given_up.ask_for_get(poll.origin, get, Outcome.BUSY):
                core.answer(poll.origin, Outcome.BUSY, reason="too_many_operations_wait_for_a_whole_topic")
            return
        core.counters["delivered"] += answer.records
        self._end(
            poll,
            answer.outcome,
            message=answer.last,
            first=answer.first,
            records=answer.records,
            checksum=answer.checksum,
            log=topic.open.id,
            body=answer.body,
        )

    def end_polls(self, topic: str, outcome: Outcome) -> None:
        """Answer all that wait on a topic."""
        core = self._core
        for poll in core.polls.waiting(topic):
            self._end(poll, outcome)

    def end_outdated_poll(self, topic: str, subscriber: str) -> None:
        """Answer a subscriber that waits under a number or an opening that is not the entry's any more."""
        core = self._core
        entry = core.topics[topic].entries[subscriber]
        for poll in core.polls.waiting(topic):
            get = poll.get
            if get.sender == subscriber and _is_outdated(get, entry):
                self._end(poll, Outcome.SUPERSEDED, **_newer(entry))

    def _pass(
        self, poll: Poll, topic: Topic, entry: Entry, legs: tuple[Leg, ...], rest: tuple[Leg, ...], now: float
    ) -> None:
        """All that was looked at, at the front of the legs, is left out: what is still to be looked at lies behind it.

        Where that front is the entry's own it goes for good, so that it is looked at once and counts as backlog no
        more. It cannot wait for an acknowledgement: where nothing comes behind it there will be none, and nothing
        comes while it fills the topic.
        """
        if legs == entry.legs:
            entry.legs = rest
            self._core.marks.acknowledged(topic.name, poll.get.sender, now)
        poll.walked = entry.legs, rest

    def _end(self, poll: Poll, outcome: Outcome, **facts: object) -> None:
        core = self._core
        core.polls.take(poll.get.topic, poll.get.sender)
        core.answer(poll.origin, outcome, **facts)


def _is_outdated(get: Get, entry: Entry) -> bool:
    """Whether a GET is that of an earlier subscription, or of an earlier opening of its client."""
    return get.number < entry.number or get.opening < entry.opening


def _newer(entry: Entry) -> dict[str, object]:
    """What one is told whose GET is outdated."""
    return {
        "number": entry.number,
        "opening": entry.opening,
        "reason": "" if entry.on else "the_subscription_was_ended_elsewhere",
    }
