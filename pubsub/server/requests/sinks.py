"""Sinks: batches of rows that appear in a topic as a whole, once, however often they are written.

The rules are those of docs/architecture.md, *Sinks*.

Rows are staged under (publisher, batch, attempt), each attempt under a name that was never used before, and published
by naming the attempts that count. The topic's own `last` of the publisher is the memory of it: a row's counter is
(batch + 1) << 32 | row, so `last >> 32` is how many batches were published, moves with the topic, and makes a replay
a duplicate whatever order its rows have by then. That is looked at first.

    STAGE    batch published → duplicate        first row = rows held → kept, durably
             rows held already → success        beyond → gap: a row before it is missing
    PUBLISH  batch published → duplicate        a stage unknown, or with other rows than named → restage
             batch follows the last one here, or the topic is whole → appended in one step, other stages dropped
             else → busy

The published records refer to the bytes where they were staged, so these are written once. What is dropped is deleted
in pieces: what is left of this batch and older ones once it is published; at any publish what was staged of its batch
before what it names; after a day of silence, or ten minutes where the same sink finds no room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import BATCH_RECORDS_MAX, OFFSET_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import check_batch
from pubsub.protocol.messages import Outcome, Publish
from pubsub.protocol.messages import Stage as StageRows
from pubsub.server.state.replies import Origin
from pubsub.server.topic import changes as c
from pubsub.server.topic.stages import Piece, Stage, StageKey
from pubsub.server.topic.topic import Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

ROW_BITS: Final = 32
ROWS_MAX: Final = 1 << ROW_BITS
"""Rows of one batch on one topic."""

BATCHES_MAX: Final = (1 << 31) - 2
"""One above the highest number of a batch."""

STAGES_MAX: Final = 10_000
"""Stages that a topic holds at once; a further one is answered `full`."""

PIECES_MAX: Final = 100_000
"""Pieces that all stages of a topic have together, and so records' batches that one publish appends."""

IDLE_SECONDS: Final = 24 * 3600.0
"""Silence after which a stage is dropped."""

LEFT_SECONDS: Final = 600.0
"""Silence after which a stage is dropped where the same sink needs its room."""

ROOM: Final = frozenset({"STAGES_MAX", "PIECES_MAX", "backlog_bytes_max"})
"""Limits of what a topic holds, which stages count towards."""

LOOK_SECONDS: Final = 600.0
"""How often it is looked for idle stages."""

DELETED_PIECES: Final = 16
"""Pieces of dropped stages that are deleted in one loop."""


def published(last: int) -> int:
    """How many batches of a sink are published, as `last` of its publisher says."""
    return last >> ROW_BITS


class Sinks:
    """What the sinks of one server staged.

    Args:
        core: the server.
        next_stage, next_piece: the first free numbers.
        dropped: number and pieces of stages that are nobody's.
        now: monotonic seconds.
    """

    def __init__(
        self, core: ServerCore, next_stage: int, next_piece: int, dropped: Iterable[tuple[int, int]], now: float
    ) -> None:
        self._core = core
        self._next_stage, self._next_piece = next_stage, next_piece
        self._dropped: deque[tuple[int, int]] = deque(dropped)
        self._deleting: tuple[int, int] | None = None
        """The first of them as it was before this loop, whose commit deletes some of it."""
        self._look_at = now + LOOK_SECONDS

    # Staging

    def stage(self, origin: Origin, rows: StageRows, now: float) -> None:
        """STAGE: keep rows that nobody sees yet."""
        core = self._core
        if not 0 < rows.count <= BATCH_RECORDS_MAX or rows.first + rows.count > ROWS_MAX or rows.batch >= BATCHES_MAX:
            core.refuse(origin, "batch, first or count out of range", now)
            return
        topic = core.topics.get(rows.topic)
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        name = f"{rows.sender}/{rows.publisher}"
        last = self._last(topic, name)
        log = topic.open.id if topic else ""
        if published(last) > rows.batch:
            core.answer(origin, Outcome.DUPLICATE, last=last, log=log)
            return
        publisher = core.publishers.find(name) or 0
        stage = topic.stages.get((publisher, rows.batch, rows.attempt)) if topic else None
        held = stage.rows if stage else 0
        if rows.first + rows.count <= held:
            core.answer(origin, Outcome.SUCCESS, rows=held, log=log)
            return
        if rows.first != held:
            core.answer(origin, Outcome.GAP, rows=held, log=log)
            return
        obstacle = self._obstacle(topic, name, len(rows.body), new=stage is None)
        if obstacle in ROOM and topic and self._make_room(topic, (publisher, rows.batch, rows.attempt), now):
            obstacle = self._obstacle(topic, name, len(rows.body), new=stage is None)
        if obstacle:
            core.answer(origin, Outcome.FULL, reason=obstacle, log=log)
            return
        try:
            check_batch(rows.body, rows.count, rows.checksum)
        except DecodeError as error:
            core.refuse(origin, error.reason, now)
            return
        topic = topic or core.create(rows.topic)
        held = self._keep(topic, core.publishers.number(name), rows, now)
        core.answer(origin, Outcome.SUCCESS, rows=held, log=topic.open.id)

    def _last(self, topic: Topic | None, name: str) -> int:
        return topic.last.get(self._core.publishers.find(name) or 0, 0) if topic else 0

    def _obstacle(self, topic: Topic | None, name: str, size: int, *, new: bool) -> str:
        """Which limit keeps rows from being staged, or "" for none."""
        core, settings = self._core, self._core.settings
        if core.full:
            return "disk"
        if core.publishers.find(name) is None and core.publishers.full:
            return "STORE_PUBLISHERS_MAX"
        if topic is None:
            return "topics_max" if len(core.topics) >= settings.topics_max else ""
        if core.publishers.find(name) not in topic.last and len(topic.last) >= settings.publishers_max:
            return "publishers_max"
        if new and len(topic.stages) >= STAGES_MAX:
            return "STAGES_MAX"
        if sum(len(stage.pieces) for stage in topic.stages.values()) >= PIECES_MAX:
            return "PIECES_MAX"
        return "" if self._has_room(topic, size) else "backlog_bytes_max"

    def _has_room(self, topic: Topic, size: int) -> bool:
        """Whether so many more bytes fit under the backlog's limit, which counts what is staged too."""
        limit = self._core.settings.backlog_bytes_max
        if topic.backlog_bytes + topic.staged_bytes + size > limit:
            self._core.measure(topic)
        return topic.backlog_bytes + topic.staged_bytes + size <= limit

    def _keep(self, topic: Topic, publisher: int, rows: StageRows, now: float) -> int:
        core, heard = self._core, self._core.stamps.reading(now)
        stage = topic.stages.get((publisher, rows.batch, rows.attempt))
        if stage is None:
            stage = self._open(topic.number, Stage(0, publisher, rows.batch, rows.attempt, heard))
            topic.stages[stage.key] = stage
        stage.heard = heard
        self._add(stage, rows.first, rows.count, rows.checksum, rows.body)
        core.marks.touched.add(topic.name)
        core.counters["rows staged"] += rows.count
        return stage.rows

    def _open(self, topic: int, stage: Stage) -> Stage:
        """Give a stage its number, and a row that says of which topic it is; 0: none's yet."""
        stage.number, self._next_stage = self._next_stage, self._next_stage + 1
        self._core.marks.rows.append(
            c.StageOpened(stage.number, topic, stage.publisher, stage.batch, stage.attempt, stage.heard)
        )
        return stage

    def _add(self, stage: Stage, first: int, count: int, checksum: int, body: bytes | memoryview) -> None:
        piece = Piece(self._next_piece, first, count, checksum, len(body))
        self._next_piece += 1
        stage.add(piece)
        self._core.marks.rows.append(c.PieceStaged(stage.number, piece.id, first, count, checksum, stage.heard, body))

    # Publishing

    def publish(self, origin: Origin, request: Publish, now: float, whole: bool = False) -> None:
        """PUBLISH: append what is named, in one step.

        Args:
            whole: every proxy has answered, for this very request, that no other server holds the topic.
        """
        core = self._core
        wanted = request.stages or {}
        if sum(wanted.values()) > ROWS_MAX or request.batch >= BATCHES_MAX or not all(wanted.values()):
            core.refuse(origin, "batch or rows out of range", now)
            return
        topic = core.topics.get(request.topic)
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        name = f"{request.sender}/{request.publisher}"
        last = self._last(topic, name)
        log = topic.open.id if topic else ""
        if published(last) > request.batch:
            core.answer(origin, Outcome.DUPLICATE, last=last, log=log)
            return
        publisher = core.publishers.find(name) or 0
        found = [topic.stages.get((publisher, request.batch, attempt)) for attempt in wanted] if topic else []
        stages = [stage for stage, rows in zip(found, wanted.values(), strict=False) if stage and stage.rows == rows]
        if topic is not None:
            self._drop_outdone(topic, publisher, request.batch, wanted.keys())
        if len(stages) != len(wanted):
            core.counters["restaged"] += 1
            core.answer(origin, Outcome.RESTAGE, last=last, log=log, reason="a_stage_is_not_here_in_full")
            return
        obstacle = self._publish_obstacle(topic, name, sum(wanted.values()))
        if obstacle:
            core.answer(origin, Outcome.FULL, reason=obstacle, last=last, log=log)
        elif published(last) != request.batch and not whole:
            self._ask(origin, request)
        else:
            topic = topic or core.create(request.topic)
            last = self._append(topic, core.publishers.number(name), request.batch, stages, now)
            core.answer(origin, Outcome.SUCCESS, last=last, rows=sum(wanted.values()), log=topic.open.id)

    def _ask(self, origin: Origin, request: Publish) -> None:
        core = self._core

        def then(whole: bool, now: float) -> None:
            if whole:
                self.publish(origin, request, now, whole=True)
            else:
                core.answer(origin, Outcome.BUSY, reason="topic_is_not_known_to_be_whole")

        if not core.wholeness.ask(request.topic, then):
            core.answer(origin, Outcome.BUSY, reason="too_many_operations_wait_for_a_whole_topic")

    def _publish_obstacle(self, topic: Topic | None, name: str, rows: int) -> str:
        core = self._core
        if core.full:
            return "disk"
        if core.publishers.find(name) is None and core.publishers.full:
            return "STORE_PUBLISHERS_MAX"
        if topic is None:
            return "topics_max" if len(core.topics) >= core.settings.topics_max else ""
        if core.publishers.find(name) not in topic.last and len(topic.last) >= core.settings.publishers_max:
            return "publishers_max"
        return "OFFSET_BITS" if topic.open.end + rows > OFFSET_MAX else ""

    def _append(self, topic: Topic, publisher: int, batch: int, stages: list[Stage], now: float) -> int:
        """Make the stages' rows records; the last counter."""
        core, row = self._core, 0
        first = batch + 1 << ROW_BITS
        for stage in stages:
            for piece in stage.pieces:
                offset, total = topic.append(publisher, first | row, piece.count, piece.size)
                core.marks.rows.append(
                    c.BatchPublished(
                        topic.open.number,
                        offset,
                        piece.count,
                        publisher,
                        first | row,
                        core.stamps.next(now),
                        piece.checksum,
                        total,
                        piece.id,
                    )
                )
                row += piece.count
                core.retention.appended(topic.name, piece.size, now)
            del topic.stages[stage.key]
            core.marks.rows.append(c.StagePublished(stage.number))
        topic.last[publisher] = first | max(0, row - 1)
        core.marks.last(topic.name, publisher)
        core.counters["records"] += row
        core.polls.appended(topic.name)
        self._drop_published(topic)
        return topic.last[publisher]

    # What is dropped

    def _drop_published(self, topic: Topic) -> None:
        """Drop the stages of batches that are published."""
        for stage in list(topic.stages.values()):
            if published(topic.last.get(stage.publisher, 0)) > stage.batch:
                self._drop(topic, stage)

    def _drop_outdone(self, topic: Topic, publisher: int, batch: int, named: Collection[str]) -> None:
        """Drop what was staged of a batch before what counts of it: no later publish will name it.

        What was staged since stays: this publish may be a late repeat, and the batch be written again by now.
        """
        tried = [stage for stage in topic.stages.values() if (stage.publisher, stage.batch) == (publisher, batch)]
        newest = max((stage.heard for stage in tried if stage.attempt in named), default=0)
        for stage in tried:
            if stage.attempt not in named and stage.heard < newest:
                self._drop(topic, stage)

    def _make_room(self, topic: Topic, key: StageKey, now: float) -> bool:
        """Drop what the same sink staged and left: tries that no publish came for would keep out the one that counts.

        Args:
            key: of the stage that is being written.

        Returns:
            Whether there was any.
        """
        oldest = self._core.stamps.reading(now) - int(LEFT_SECONDS * MICROSECONDS)
        left = [one for one in topic.stages.values() if one.publisher == key[0] and one.heard <= oldest]
        left = [one for one in left if one.key != key]
        for stage in left:
            self._drop(topic, stage)
        return bool(left)

    def _drop(self, topic: Topic, stage: Stage) -> None:
        del topic.stages[stage.key]
        self._core.marks.touched.add(topic.name)
        self.discard([stage])

    def discard(self, stages: Iterable[Stage]) -> None:
        """Delete stages that are nobody's any more."""
        for stage in stages:
            self._core.marks.rows.append(c.StageDropped(stage.number))
            self._dropped.append((stage.number, len(stage.pieces)))

    def tick(self, now: float) -> list[c.Change]:
        """Drop stages that were silent for long, and delete some of what was dropped."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            oldest = self._core.stamps.reading(now) - int(IDLE_SECONDS * MICROSECONDS)
            for topic in self._core.topics.values():
                for stage in [stage for stage in topic.stages.values() if stage.heard <= oldest]:
                    if not topic.frozen:
                        self._drop(topic, stage)
        if not self._dropped:
            return []
        number, pieces = self._deleting = self._dropped.popleft()
        if pieces > DELETED_PIECES:
            self._dropped.appendleft((number, pieces - DELETED_PIECES))
        return [c.StagedDeleted(number, DELETED_PIECES, pieces <= DELETED_PIECES)]

    def committed(self) -> None:
        """What was deleted is gone."""
        self._deleting = None

    def reverted(self) -> None:
        """The loop was taken back: nothing was deleted."""
        if self._deleting is not None:
            if self._dropped and self._dropped[0][0] == self._deleting[0]:
                self._dropped.popleft()
            self._dropped.appendleft(self._deleting)
            self._deleting = None

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return float("-inf") if self._dropped else self._look_at

    # A topic that moves

    def arrived(
        self,
        stages: dict[StageKey, Stage],
        key: StageKey,
        heard: int,
        rows: Iterable[tuple[int, int, int, bytes]],
    ) -> None:
        """Keep rows of a topic that is on its way here, which nobody can publish yet.

        Args:
            stages: what arrived of the topic so far; it grows.
            rows: first, count, checksum, body.
        """
        stage = stages.get(key)
        if stage is None:
            stage = stages[key] = self._open(0, Stage(0, *key, heard))
        for first, count, checksum, body in rows:
            self._add(stage, first, count, checksum, body)

    def join(self, topic: Topic, stages: Iterable[Stage]) -> None:
        """A topic was joined with one that came with these stages: of two with one key the longer one stays."""
        for stage in stages:
            own = topic.stages.get(stage.key)
            if own is not None and own.rows >= stage.rows:
                self.discard([stage])
                continue
            if own is not None:
                self.discard([own])
            topic.stages[stage.key] = stage
            self._core.marks.rows.append(c.StageJoined(stage.number, topic.number))
        self._drop_published(topic)
