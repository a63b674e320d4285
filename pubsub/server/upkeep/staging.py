"""Staged rows in the background: kept, dropped when no sink will publish them, deleted in pieces (`requests.sinks`).

The rules are those of docs/explanation/spark-exchange.md, K13 and K14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol.sinks import Stage as StageRows
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.stages import Piece, Stage, StageKey
from pubsub.server.topic.topic import Topic

ROW_BITS: Final = 32
STAGES_MAX: Final = 10_000
"""Maximum number of stages of a topic; a further one is answered `full`."""

PIECES_MAX: Final = 100_000
"""Maximum number of pieces in all stages of a topic, and so of batches that one publish appends."""

IDLE_SECONDS: Final = 24 * 3600.0
"""Silence after which a stage is dropped."""

LEFT_SECONDS: Final = 600.0
"""Silence after which a stage is dropped if the same sink needs its room."""

LOOK_SECONDS: Final = 600.0
"""Interval between checks for idle stages."""

PAUSE_SECONDS: Final = 0.1
"""Interval before another try if the disk was too full even to delete."""

DELETED_PIECES: Final = 16
"""Pieces of dropped stages that are deleted in one loop."""


def published(last: int) -> int:
    """Return the number of published batches of a sink, from the `last` of its publisher."""
    return last >> ROW_BITS


class Staging:
    """The staged rows of the sinks of one server.

    Args:
        state: of the server.
        next_stage, next_piece: the first free numbers.
        dropped: number and count of pieces of each stage without a topic.
        now: monotonic seconds.
    """

    def __init__(
        self, state: State, next_stage: int, next_piece: int, dropped: Iterable[tuple[int, int]], now: float
    ) -> None:
        self._state = state
        self._next_stage, self._next_piece = next_stage, next_piece
        self._dropped: deque[tuple[int, int]] = deque(dropped)
        self._look_at = now + LOOK_SECONDS
        self._paused_until = float("-inf")

    def keep(self, topic: Topic, publisher: int, rows: StageRows, now: float) -> int:
        """Store the next rows of a stage. Return the number of rows that it has now."""
        state, heard = self._state, self._state.stamps.reading(now)
        stage = topic.stages.get((publisher, rows.batch, rows.attempt))
        if stage is None:
            stage = self._open(topic.number, Stage(0, publisher, rows.batch, rows.attempt, heard))
        topic.keep(stage, self._piece(stage, heard, rows.first, rows.count, rows.checksum, rows.body))
        state.counters["rows_staged"] += rows.count
        return stage.rows

    def _open(self, topic: int, stage: Stage) -> Stage:
        """Assign a stage its number, and store its row with the number of its topic; 0 if it has none yet."""
        stage.number, self._next_stage = self._next_stage, self._next_stage + 1
        self._state.uncommitted.rows.append(
            c.StageOpened(stage.number, topic, stage.publisher, stage.batch, stage.attempt, stage.heard)
        )
        return stage

    def _piece(
        self, stage: Stage, heard: int, first: int, count: int, checksum: int, body: bytes | memoryview
    ) -> Piece:
        """Assign a piece its number, and store its row."""
        stage.heard = heard
        piece = Piece(self._next_piece, first, count, checksum, len(body))
        self._next_piece += 1
        self._state.uncommitted.rows.append(
            c.PieceStaged(stage.number, piece.id, first, count, checksum, stage.heard, body)
        )
        return piece

    # Dropping

    def drop_published(self, topic: Topic) -> None:
        """Drop the stages of published batches."""
        for stage in list(topic.stages.values()):
            if published(topic.last.get(stage.publisher, 0)) > stage.batch:
                self._drop(topic, stage)

    def drop_outdone(self, topic: Topic, publisher: int, batch: int, named: Collection[str]) -> None:
        """Drop the attempts of a batch that are older than the published one. No later publish will name them.

        Newer attempts stay. This publish may be a late repeat, and the batch may be under way again by now.
        """
        tried = [stage for stage in topic.stages.values() if (stage.publisher, stage.batch) == (publisher, batch)]
        newest = max((stage.heard for stage in tried if stage.attempt in named), default=0)
        for stage in tried:
            if stage.attempt not in named and stage.heard < newest:
                self._drop(topic, stage)

    def make_room(self, topic: Topic, key: StageKey, now: float) -> bool:
        """Drop old attempts of the same sink that were never published.

        They would take the room of the attempt that counts.

        Args:
            topic: of the stages.
            key: of the stage that is being written.
            now: monotonic seconds.

        Returns:
            True if any were dropped.
        """
        oldest = self._state.stamps.reading(now) - int(LEFT_SECONDS * MICROSECONDS)
        left = [one for one in topic.stages.values() if one.publisher == key[0] and one.heard <= oldest]
        left = [one for one in left if one.key != key]
        for stage in left:
            self._drop(topic, stage)
        return bool(left)

    def _drop(self, topic: Topic, stage: Stage) -> None:
        topic.drop(stage)
        self.discard([stage])

    def discard(self, stages: Iterable[Stage]) -> None:
        """Delete stages that no longer have a topic."""
        for stage in stages:
            self._state.uncommitted.rows.append(c.StageDropped(stage.number))
            self._dropped.append((stage.number, len(stage.pieces)))
            self._state.uncommitted.undo(self._dropped.pop)

    def tick(self, now: float) -> list[c.Change]:
        """Drop stages that were silent for long, and delete some pieces of dropped stages."""
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            oldest = self._state.stamps.reading(now) - int(IDLE_SECONDS * MICROSECONDS)
            for topic in self._state.topics.values():
                for stage in [stage for stage in topic.stages.values() if stage.heard <= oldest]:
                    if not topic.frozen:
                        self._drop(topic, stage)
        if not self._dropped or now < self._paused_until:
            return []
        number, pieces = self._dropped.popleft()
        self._state.uncommitted.undo(lambda: self._dropped.appendleft((number, pieces)))
        if pieces > DELETED_PIECES:
            self._dropped.appendleft((number, pieces - DELETED_PIECES))
            self._state.uncommitted.undo(self._dropped.popleft)
        return [c.StagedDeleted(number, DELETED_PIECES, pieces <= DELETED_PIECES)]

    def deadline(self) -> float:
        """Return the time at which `tick` has work."""
        return self._paused_until if self._dropped else self._look_at

    def pause(self, now: float) -> None:
        """Wait before the next try, because the loop was undone and nothing was deleted."""
        self._paused_until = now + PAUSE_SECONDS

    # Transfers and merges

    def arrived(
        self,
        stages: dict[StageKey, Stage],
        key: StageKey,
        heard: int,
        rows: Iterable[tuple[int, int, int, bytes | memoryview]],
    ) -> None:
        """Store rows of a topic that is being transferred to this server. They cannot be published yet.

        Args:
            stages: the stages of the topic that have arrived so far; extended here.
            key: of the stage.
            heard: timestamp of the stage's last sign of life.
            rows: first, count, checksum, body.
        """
        stage = stages.get(key)
        if stage is None:
            stage = stages[key] = self._open(0, Stage(0, *key, heard))
        for first, count, checksum, body in rows:
            stage.add(self._piece(stage, heard, first, count, checksum, body))

    def merge(self, topic: Topic, stages: Iterable[Stage]) -> None:
        """Add the stages of a merged topic. Of two stages with one key the longer one stays."""
        for stage in stages:
            own = topic.stages.get(stage.key)
            if own is not None and own.rows >= stage.rows:
                self.discard([stage])
                continue
            if own is not None:
                self.discard([own])
            topic.keep(stage)
            self._state.uncommitted.rows.append(c.StageMerged(stage.number, topic.number))
        self.drop_published(topic)
        # A topic with too many pieces could not be transferred any more. The longest silent stages are dropped.
        pieces = sum(len(stage.pieces) for stage in topic.stages.values())
        for stage in sorted(topic.stages.values(), key=lambda one: one.heard):
            if pieces <= PIECES_MAX:
                break
            pieces -= len(stage.pieces)
            self._drop(topic, stage)
