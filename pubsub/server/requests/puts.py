"""Puts: what a server does with a batch of records."""

from __future__ import annotations

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import check_batch
from pubsub.protocol.messages import Outcome, Put
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.recovery.abandoned import Abandoned
from pubsub.server.requests.admission import Admission
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.topic import Topic, Verdict, judge
from pubsub.server.upkeep.retention import Retention


class Puts:
    """The puts of one server.

    Args:
        state: the server's.
        sole_owner: says whether this server is a topic's sole owner.
        admission: says what there is room for.
        retention: told of what is appended.
        abandoned: knows what was put to a log that is gone.
    """

    def __init__(
        self, state: State, sole_owner: SoleOwner, admission: Admission, retention: Retention, abandoned: Abandoned
    ) -> None:
        self._state, self._sole_owner, self._admission = state, sole_owner, admission
        self._retention, self._abandoned = retention, abandoned

    def put(self, origin: Origin, put: Put, now: float, sole_owner: bool = False) -> None:
        """PUT: take it, or say why not.

        Args:
            sole_owner: every proxy has answered, for this very put, that no other server holds the topic.
        """
        state = self._state
        if not 0 < put.count <= BATCH_RECORDS_MAX or put.counter + put.count > NUMBER_MAX or not put.counter:
            state.replies.refuse(origin, "counter or count out of range")
            return
        topic = state.topics.get(put.topic)
        name = f"{put.sender}/{put.publisher}"
        number = state.publishers.find(name)
        last = topic.last.get(number, 0) if topic and number is not None else 0
        log = topic.open.id if topic else ""
        verdict = judge(last, put.counter, put.count, put.previous)
        if verdict is Verdict.GAP and self._abandoned.gap(origin, put, topic, sole_owner):
            return
        if verdict is not Verdict.TAKE:
            state.counters[verdict.value] += 1
            outcome = Outcome.DUPLICATE if verdict is Verdict.DUPLICATE else Outcome.GAP
            state.replies.answer(origin, outcome, last=last, log=log)
            return
        obstacle = self._admission.put(topic, number, put)
        if obstacle:
            state.replies.answer(origin, Outcome.FULL, reason=obstacle, last=last, log=log)
            return
        try:
            check_batch(put.body, put.count, put.checksum)
        except DecodeError as error:
            state.replies.refuse(origin, error.reason)
            return
        if put.whole and not sole_owner:
            self._sole_owner.park_or_turn_away(origin, put)
            return
        topic = topic or state.create(put.topic)
        self._append(topic, state.publishers.number(name), put, now)
        last = put.counter + put.count - 1
        if put.cumulative:  # `last` says of the puts before, taken in this loop too, all there is.
            key = origin.link, origin.origin, put.topic, name
            state.replies.answer_together(key, origin, Outcome.SUCCESS, last=last, log=topic.open.id)
        else:
            state.replies.answer(origin, Outcome.SUCCESS, last=last, log=topic.open.id)

    def _append(self, topic: Topic, publisher: int, put: Put, now: float) -> None:
        state = self._state
        offset, total = topic.append(publisher, put.counter, put.count, len(put.body))
        stamp = state.stamps.next(now)
        state.uncommitted.rows.append(
            c.BatchAppended(
                topic.open.number, offset, put.count, publisher, put.counter, stamp, put.checksum, total, put.body
            )
        )
        state.counters["records"] += put.count
        self._retention.appended(topic.name, len(put.body), now)
        state.long_polls.appended(topic.name)
