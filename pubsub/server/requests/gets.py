"""GET of a client's own subscription: it is parked, and served once this loop's changes are in the store.

The rule is docs/explanation/get.md, G4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Get, Outcome
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.recovery.abandoned import Abandoned
from pubsub.server.requests.replays import Replays, is_far_behind
from pubsub.server.state.long_polls import Poll, newer
from pubsub.server.state.measures import Timing
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import REPAIRING, State
from pubsub.server.topic import changes as c
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delivery import Answer, collect
from pubsub.server.topic.settings import BUILT_IN
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic, ends_unknown
from pubsub.server.upkeep.expiry import count, unexpired

DELIVERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes handed out in one loop; the remaining GETs are served in the next loop."""


class Gets:
    """The GETs of one server's subscribers.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        abandoned: recognises positions in lost logs.
        replays: the pace of readers far behind.
        trusts_ages: returns whether the clock is right enough for ages, at this monotonic time.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        abandoned: Abandoned,
        replays: Replays,
        trusts_ages: Callable[[float], bool],
    ) -> None:
        self._state, self._sole_owner, self._abandoned, self._replays = state, sole_owner, abandoned, replays
        self._trusts_ages = trusts_ages
        self._delivered_bytes = 0

    def get(self, origin: Origin, get: Get, now: float, sole_owner: bool = False) -> None:
        """Process GET of a client's own subscription.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state = self._state
        topic = state.topics.get(get.topic)
        if self._abandoned.place(origin, get, topic, sole_owner):
            return
        subscription = topic.subscriptions.get(get.sender) if topic else None
        if topic is None or subscription is None or get.number > subscription.number:
            state.replies.answer(origin, Outcome.UNKNOWN, reason="topic" if topic is None else "subscription")
            return
        if subscription.outdates(get.number, get.epoch):
            state.replies.answer(origin, Outcome.SUPERSEDED, log=topic.open.id, **newer(subscription))
            return
        if not subscription.on:
            state.replies.answer(origin, Outcome.UNKNOWN, reason="not_subscribed", log=topic.open.id)
            return
        if get.epoch > subscription.epoch:
            topic.begin_epoch(get.sender, get.epoch)
        if not topic.acknowledge(get.sender, get.last):
            state.counters["positions_behind"] += 1
            place = subscription.cursor.acknowledged
            state.replies.answer(origin, Outcome.BEHIND, position=place, log=topic.open.id)
            return
        if get.records_max == 0:
            state.replies.answer(origin, Outcome.EMPTY, log=topic.open.id)
            return
        expires = now + min(get.wait_ms / 1000, state.settings.wait_seconds_max)
        state.long_polls.park(Poll(origin, get, get.sender, expires, sole_owner=sole_owner))

    def deliver(self, now: float) -> None:
        """Serve the parked GETs that have something to receive, after this loop's changes are in the store."""
        state = self._state
        self._delivered_bytes = 0
        far: list[tuple[str, list[Poll]]] = []
        for name, polls in state.long_polls.ready():
            self._deliver(name, polls, now, far)
        for name, polls in far:  # After the current readers, and at a pace.
            self._deliver(name, polls, now, None)

    def _deliver(self, name: str, polls: list[Poll], now: float, far: list[tuple[str, list[Poll]]] | None) -> None:
        """Serve parked GETs of one topic.

        Args:
            far: collects those of readers far behind; None: serve them.
        """
        state, topic, replaying = self._state, self._state.topics.get(name), []
        answers: dict[tuple[object, ...], Answer] = {}
        for poll in polls:
            get = poll.get
            subscription = topic.subscriptions.get(poll.subscription) if topic else None
            if topic is None or subscription is None or get.number > subscription.number or not subscription.on:
                state.long_polls.end(poll, Outcome.UNKNOWN, reason="subscription")
            elif subscription.outdates(get.number, get.epoch):  # The client was opened again meanwhile.
                state.long_polls.end(poll, Outcome.SUPERSEDED, **newer(subscription))
            elif self._delivered_bytes >= DELIVERED_BYTES_MAX:
                state.long_polls.look_again(name)
            elif subscription.cursor.far and far is not None:
                replaying.append(poll)
            elif subscription.cursor.far and (at := self._replays.next_at(now)) is not None:
                state.long_polls.look_at(name, at)
            else:
                # The loop of its arrival was undone, and the new epoch with it.
                if get.epoch > subscription.epoch:
                    topic.begin_epoch(poll.subscription, get.epoch)
                self._serve(poll, topic, subscription, answers, now)
        if far is not None and replaying:
            far.append((name, replaying))

    def _serve(
        self,
        poll: Poll,
        topic: Topic,
        subscription: Subscription,
        answers: dict[tuple[object, ...], Answer],
        now: float,
    ) -> None:
        """Answer a poll, if there is something to answer.

        Args:
            answers: this loop's answers by span, so that subscribers at the same place share one.
        """
        state, get, cursor = self._state, poll.get, subscription.cursor
        spans = topic.reading(cursor, get.last if get.after is None else get.after)
        if spans is None:
            state.long_polls.end(poll, Outcome.BEHIND, position=cursor.acknowledged, log=topic.open.id)
            return
        if poll.walked is not None and poll.walked[0] is cursor.backlog:
            spans = poll.walked[1]
        try:
            spans = self._unexpired(topic, cursor, spans, now)
            answer = self._collect(get, topic, spans, answers)
        except StoreDamaged:
            state.found_damaged(topic)
            state.long_polls.end(poll, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return
        if answer.rest is not None and answer.rest != spans:
            self._pass(poll, topic, cursor, spans, answer.rest)
            if topic.waiting(answer.rest):  # One loop reads only so many batches; the next loop continues.
                state.long_polls.look_again(get.topic)
                return
        if answer.outcome is Outcome.EMPTY and poll.expires > now:
            poll.sole_owner = False  # The answer holds for this loop only; a later loss needs a new question.
            return
        if answer.repairable is not None and state.ask_repair(*answer.repairable):
            if poll.expires <= now:
                state.long_polls.end(poll, Outcome.UNAVAILABLE, reason=REPAIRING, log=topic.open.id)
            return
        unsure = answer.outcome is Outcome.LOST and answer.last is not None and ends_unknown(topic, answer.last)
        if unsure and not poll.sole_owner:
            state.long_polls.take(poll)
            self._sole_owner.park_or_reject(poll.origin, get)
            return
        if answer.last is not None:
            cursor.hand_out(answer.last)
        if answer.records and answer.last is not None:
            self._pace(topic, cursor, answer)
        self._hand_out(poll, topic, answer, now)

    def _pace(self, topic: Topic, cursor: Cursor, answer: Answer) -> None:
        """Count an answer, and note whether its reader is far behind."""
        assert answer.last is not None
        if cursor.far:
            self._replays.handed_out(len(answer.body))
        else:
            self._replays.shared = True
        cursor.falls_behind(far=is_far_behind(topic, answer.last[0], answer.total))

    def _unexpired(self, topic: Topic, cursor: Cursor, spans: tuple[Span, ...], now: float) -> tuple[Span, ...]:
        """Return the spans without batches that the topic's setting `expire` leaves out."""
        if topic.in_force is BUILT_IN or topic.in_force.expire_age is None or not self._trusts_ages(now):
            return spans
        state = self._state
        left = unexpired(topic, spans, state.stamps.reading(now), state.reader)
        state.counters["expired"] += count(cursor, spans, left)
        return left

    def _hand_out(self, poll: Poll, topic: Topic, answer: Answer, now: float) -> None:
        measures = self._state.measures
        if measures is not None and answer.records:
            poll.origin.timing = Timing(measures.deliveries, now - self._state.stamps.age(answer.stamp, now))
        self._state.counters["delivered"] += answer.records
        if answer.doubtful:
            self._state.counters["delivered_doubtful"] += answer.records
        self._state.long_polls.end(
            poll,
            answer.outcome,
            message=answer.last,
            first=answer.first,
            reason=answer.reason,
            records=answer.records,
            checksum=answer.checksum,
            log=topic.open.id,
            doubtful=int(answer.doubtful),
            body=answer.body,
        )

    def _collect(
        self, get: Get, topic: Topic, spans: tuple[Span, ...], answers: dict[tuple[object, ...], Answer]
    ) -> Answer:
        """Collect one answer from these spans."""
        state, settings = self._state, self._state.settings
        records = min(get.records_max, settings.answer_records_max)
        size = min(get.bytes_max or settings.answer_bytes_max, settings.answer_bytes_max)
        key = (spans, records, size)
        answer = answers.get(key)
        if answer is None:
            answer = answers[key] = collect(topic, spans, state.reader, state.publishers.names, records, size)
            state.uncommitted.rows += [c.BatchQuarantined(log, offset) for log, offset in answer.damaged]
            state.counters["batches_damaged"] += len(answer.damaged)
            self._delivered_bytes += len(answer.body)
        return answer

    def _pass(self, poll: Poll, topic: Topic, cursor: Cursor, spans: tuple[Span, ...], rest: tuple[Span, ...]) -> None:
        """Skip the batches at the front of the spans that were read and are all left out.

        If that front is the cursor's own, it is dropped permanently: it is read once, and no longer counts as backlog.
        It cannot wait for an acknowledgement. If no record follows, there will be none. And no record can follow while
        this backlog fills the topic.
        """
        if spans == cursor.backlog:
            topic.pass_over(poll.subscription, rest)
        poll.walked = cursor.backlog, rest
