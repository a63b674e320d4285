"""Puts: the handling of one batch of records, or of several of one chain that arrived together (a train).

The rules are those of docs/explanation/batches.md, B2 and B10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import BATCH_RECORDS_MAX, DELAY_SECONDS_MAX, NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import DUE, check_batch, due_of
from pubsub.protocol.deletions import NAME_THE_LOG
from pubsub.protocol.messages import Outcome, Put
from pubsub.protocol.names import is_service_topic
from pubsub.protocol.train import split_train
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.recovery.abandoned import Abandoned
from pubsub.server.requests.admission import Admission
from pubsub.server.state.quotas import QUOTA_TOPIC
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.settings import BUILT_IN
from pubsub.server.topic.topic import Topic, Verdict, judge
from pubsub.server.upkeep.backlog_limit import BacklogLimit
from pubsub.server.upkeep.delays import Delays
from pubsub.server.upkeep.retention import Retention

DELAY_SPARE_SECONDS: Final = 24 * 3600
"""Seconds by which a due time may exceed the limit, because the client's clock may be ahead of the server's."""


def may_be_deleted(deletions: Mapping[str, int], put: Put, topic: Topic | None) -> bool:
    """Return True if a put of a new publisher may be a late repeat of one to a deleted topic.

    A publisher that has heard of the present topic names one of its logs (docs/explanation/deletion.md, UD5).
    """
    if put.topic not in deletions:
        return False
    return topic is None or not any(log in topic.logs or log in topic.merged for log in (put.log, put.avoid))


class Puts:
    """The puts of one server.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        admission: checks limits.
        retention: counts appended bytes.
        backlogs: watches topics near the limit of their backlog.
        abandoned: recognises puts to lost logs.
        delays: keeps delayed puts.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        admission: Admission,
        retention: Retention,
        backlogs: BacklogLimit,
        abandoned: Abandoned,
        delays: Delays,
    ) -> None:
        self._state, self._sole_owner, self._admission = state, sole_owner, admission
        self._retention, self._backlogs, self._abandoned = retention, backlogs, abandoned
        self._delays = delays

    def put(self, origin: Origin, put: Put, now: float, sole_owner: bool = False) -> None:
        """Process PUT. The rows of a train are judged as if each arrived alone, up to the first that is not stored.

        Args:
            sole_owner: True if enough proxies have answered, for this very put, that no other server holds the topic.
        """
        state = self._state
        rows = self._rows(origin, put)
        topic = state.topics.get(put.topic)
        name = f"{put.sender}/{put.publisher}"
        number = state.publishers.find(name)
        last = topic.last.get(number, 0) if topic and number is not None else 0
        outcome, reason = Outcome.DUPLICATE, ""
        for row in rows:
            judged, reason = self._judge(topic, number, last, row, now)
            if judged is Outcome.DUPLICATE:
                state.counters[judged.value] += 1
                continue
            if judged is Outcome.GAP and row is rows[0] and self._abandoned.gap(origin, put, topic, sole_owner):
                return
            if judged is Outcome.SUCCESS and not last and may_be_deleted(state.deletions.numbers, put, topic):
                topic = topic or state.create(put.topic)  # A client that names its log has heard of this topic.
                outcome, reason = Outcome.GAP, NAME_THE_LOG
                break
            if judged is Outcome.SUCCESS and put.sole_owner and not sole_owner:
                self._sole_owner.park_or_reject(origin, put)
                return
            outcome = judged
            if judged is not Outcome.SUCCESS:
                self._backlogs.refused(topic, reason, now)
                break
            topic = topic or state.create(put.topic)
            number = state.publishers.number(name)
            self._append(topic, number, row, now)
            last = row.counter + row.count - 1
        if rows:
            self._answer(origin, put, outcome, reason, last, topic)

    def _rows(self, origin: Origin, put: Put) -> Sequence[Put]:
        """Return the rows of a put; none if the put is refused, which is then answered."""
        reason = ""
        if put.rows:
            self._state.counters["trains"] += 1
            try:
                return split_train(put)
            except DecodeError as error:
                reason = error.reason
        elif not 0 < put.count <= BATCH_RECORDS_MAX or put.counter + put.count > NUMBER_MAX or not put.counter:
            reason = "counter or count out of range"
        else:
            return (put,)
        self._state.replies.refuse(origin, reason)
        return ()

    def _judge(
        self, topic: Topic | None, publisher: int | None, last: int, row: Put, now: float
    ) -> tuple[Outcome, str]:
        """Return the outcome of one row, and the reason; SUCCESS if the row is to be stored.

        Args:
            last: the highest counter of its publisher that is held.
        """
        verdict = judge(last, row.counter, row.count, row.previous)
        if verdict is not Verdict.TAKE:
            return (Outcome.DUPLICATE if verdict is Verdict.DUPLICATE else Outcome.GAP), ""
        body, due = row.body, 0
        if len(body) > 1 and body[1] & DUE:
            due = due_of(body)
            if refusal := self._refuses(row.topic, due, now):
                return Outcome.REFUSED, refusal
        rejection = self._admission.put(topic, publisher, row, due)
        if rejection:
            return Outcome.FULL, rejection
        try:
            check_batch(row.body, row.count, row.checksum, delays=DUE)
        except DecodeError as error:
            return Outcome.REFUSED, error.reason
        if topic is not None and topic.in_force is not BUILT_IN and self._state.quotas.holds(topic, now):
            self._state.counters["throttled"] += 1
            return Outcome.BUSY, QUOTA_TOPIC
        return Outcome.SUCCESS, ""

    def _refuses(self, topic: str, due: int, now: float) -> str:
        """Return the reason why a put cannot be delayed; "" for none."""
        if is_service_topic(topic):
            return "a service's topic has no delayed messages"
        latest = self._state.stamps.clock(now) + (DELAY_SECONDS_MAX + DELAY_SPARE_SECONDS) * MICROSECONDS
        return "" if due <= latest else f"a message can be delayed by {DELAY_SECONDS_MAX // 86400} days at most"

    def _answer(self, origin: Origin, put: Put, outcome: Outcome, reason: str, last: int, topic: Topic | None) -> None:
        """Answer a put once: `last` shows how far it was stored, and `outcome` is the result of the next row."""
        state = self._state
        log = topic.open.id if topic else ""
        if outcome is Outcome.SUCCESS and put.cumulative:
            # `last` covers all earlier puts, so one answer serves all puts of this loop.
            key = origin.link, origin.origin, put.topic, put.sender, put.publisher
            state.replies.answer_together(key, origin, outcome, last=last, log=log)
            return
        if outcome is Outcome.GAP:
            state.counters[outcome.value] += 1
        if put.rows and outcome not in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            state.counters["trains_ended_early"] += 1
        if outcome is Outcome.BUSY:
            state.replies.answer(origin, outcome, reason=reason, last=last, log=log, after=state.quotas.after)
        elif outcome is not Outcome.REFUSED:
            state.replies.answer(origin, outcome, reason=reason, last=last, log=log)
        elif put.rows:
            state.replies.refuse(origin, reason, last=last, log=log)
        else:
            state.replies.refuse(origin, reason)

    def _append(self, topic: Topic, publisher: int, put: Put, now: float) -> None:
        if topic.in_force is not BUILT_IN:
            self._state.quotas.took(topic, put, now)
        if put.body[1] & DUE:
            self._delays.keep(topic, publisher, put, due_of(put.body), now)
            return
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
        self._backlogs.appended(topic, now)
        state.long_polls.appended(topic.name)
