"""Sinks: batches of rows that appear in a topic completely and once, however often they are written.

The rules are those of docs/explanation/spark-exchange.md, *Sinks*, K9, K10 and K11.

Rows are staged under (publisher, batch, attempt), each attempt under a new name. Publishing names the attempts that
count. The topic's own `last` of the publisher records published batches. A row's counter is (batch + 1) << 32 | row, so
`last >> 32` is the number of published batches. It moves with the topic, and makes a replayed batch a duplicate
in any order of its rows. This check comes first.

    STAGE    batch published → duplicate        first row = rows held → kept, durably
             rows held already → success        beyond → gap: a row before it is missing
    PUBLISH  batch published → duplicate        a stage unknown, or with other rows than named → restage
             batch follows the last one here, or this server is the sole owner → appended, other stages dropped
             otherwise → busy

Published records refer to the bytes of the staged rows, so these bytes are written once. Dropped stages are deleted in
fragments. Stages are dropped in these cases:

* Their batch is published: the remaining stages of this batch and older ones.
* A PUBLISH names later attempts: the attempts of its batch staged before the named ones.
* A day of silence, or ten minutes if the same sink finds no room.
"""

from __future__ import annotations

from typing import Final

from pubsub.base.limits import BATCH_RECORDS_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import check_batch
from pubsub.protocol.messages import Outcome
from pubsub.protocol.sinks import Publish
from pubsub.protocol.sinks import Stage as StageRows
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import ROOM, Admission
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.stages import Stage
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.backlog_limit import BacklogLimit
from pubsub.server.upkeep.retention import Retention
from pubsub.server.upkeep.staging import ROW_BITS, Staging, published

ROWS_MAX: Final = 1 << ROW_BITS
"""Most rows of one batch on one topic."""

BATCHES_MAX: Final = (1 << 31) - 2
"""One above the highest batch number."""


class Sinks:
    """The sinks of one server.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        admission: checks limits.
        staging: keeps staged rows.
        retention: counts published bytes.
        backlogs: watches topics near the limit of their backlog.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        admission: Admission,
        staging: Staging,
        retention: Retention,
        backlogs: BacklogLimit,
    ) -> None:
        self._state, self._sole_owner, self._admission = state, sole_owner, admission
        self._staging, self._retention, self._backlogs = staging, retention, backlogs

    # Staging

    def stage(self, origin: Origin, rows: StageRows, now: float) -> None:
        """Process STAGE: keep rows that no reader can see yet."""
        state = self._state
        if not 0 < rows.count <= BATCH_RECORDS_MAX or rows.first + rows.count > ROWS_MAX or rows.batch >= BATCHES_MAX:
            state.replies.refuse(origin, "batch, first or count out of range")
            return
        topic = state.topics.get(rows.topic)
        name = f"{rows.sender}/{rows.publisher}"
        last = self._last(topic, name)
        log = topic.open.id if topic else ""
        if published(last) > rows.batch:
            state.replies.answer(origin, Outcome.DUPLICATE, last=last, log=log)
            return
        publisher = state.publishers.find(name) or 0
        stage = topic.stages.get((publisher, rows.batch, rows.attempt)) if topic else None
        held = stage.rows if stage else 0
        if rows.first + rows.count <= held:
            state.replies.answer(origin, Outcome.SUCCESS, rows=held, log=log)
            return
        if rows.first != held:
            state.replies.answer(origin, Outcome.GAP, rows=held, log=log)
            return
        rejection = self._admission.stage(topic, name, len(rows.body), new=stage is None)
        if rejection in ROOM and topic and self._staging.make_room(topic, (publisher, rows.batch, rows.attempt), now):
            rejection = self._admission.stage(topic, name, len(rows.body), new=stage is None)
        if rejection:
            self._backlogs.refused(topic, rejection, now)
            state.replies.answer(origin, Outcome.FULL, reason=rejection, log=log)
            return
        try:
            check_batch(rows.body, rows.count, rows.checksum)
        except DecodeError as error:
            state.replies.refuse(origin, error.reason)
            return
        topic = topic or state.create(rows.topic)
        held = self._staging.keep(topic, state.publishers.number(name), rows, now)
        state.replies.answer(origin, Outcome.SUCCESS, rows=held, log=topic.open.id)

    def _last(self, topic: Topic | None, name: str) -> int:
        return topic.last.get(self._state.publishers.find(name) or 0, 0) if topic else 0

    # Publishing

    def publish(self, origin: Origin, request: Publish, now: float, sole_owner: bool = False) -> None:
        """Process PUBLISH: append the named stages in one step.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        state = self._state
        wanted = request.stages or {}
        if sum(wanted.values()) > ROWS_MAX or request.batch >= BATCHES_MAX or not all(wanted.values()):
            state.replies.refuse(origin, "batch or rows out of range")
            return
        topic = state.topics.get(request.topic)
        name = f"{request.sender}/{request.publisher}"
        last = self._last(topic, name)
        log = topic.open.id if topic else ""
        if published(last) > request.batch:
            state.replies.answer(origin, Outcome.DUPLICATE, last=last, log=log)
            return
        publisher = state.publishers.find(name) or 0
        found = [topic.stages.get((publisher, request.batch, attempt)) for attempt in wanted] if topic else []
        stages = [stage for stage, rows in zip(found, wanted.values(), strict=False) if stage and stage.rows == rows]
        if topic is not None:
            self._staging.drop_outdone(topic, publisher, request.batch, wanted.keys())
        if len(stages) != len(wanted):
            state.counters["restaged"] += 1
            state.replies.answer(origin, Outcome.RESTAGE, last=last, log=log, reason="a_stage_is_missing_or_incomplete")
            return
        rejection = self._admission.publish(topic, name, sum(wanted.values()))
        if rejection:
            state.replies.answer(origin, Outcome.FULL, reason=rejection, last=last, log=log)
        elif published(last) != request.batch and not sole_owner:
            self._sole_owner.park_or_reject(origin, request)
        else:
            topic = topic or state.create(request.topic)
            last = self._append(topic, state.publishers.number(name), request.batch, stages, now)
            state.replies.answer(origin, Outcome.SUCCESS, last=last, rows=sum(wanted.values()), log=topic.open.id)

    def _append(self, topic: Topic, publisher: int, batch: int, stages: list[Stage], now: float) -> int:
        """Turn the stages' rows into records; return the last counter."""
        state, row = self._state, 0
        first = batch + 1 << ROW_BITS
        for stage in stages:
            for piece in stage.pieces:
                offset, total = topic.append(publisher, first | row, piece.count, piece.size)
                state.uncommitted.rows.append(
                    c.BatchPublished(
                        topic.open.number,
                        offset,
                        piece.count,
                        publisher,
                        first | row,
                        state.stamps.next(now),
                        piece.checksum,
                        total,
                        piece.id,
                    )
                )
                row += piece.count
                self._retention.appended(topic.name, piece.size, now)
            topic.drop(stage)
            state.uncommitted.rows.append(c.StagePublished(stage.number))
        topic.reach(publisher, first | max(0, row - 1))
        state.counters["records"] += row
        self._backlogs.appended(topic, now)
        state.long_polls.appended(topic.name)
        self._staging.drop_published(topic)
        return topic.last[publisher]
