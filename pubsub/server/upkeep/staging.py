"""Staged rows in the background: kept, dropped when nobody will publish them, deleted in pieces (`requests.sinks`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.protocol.messages import Stage as StageRows
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.stages import Piece, Stage, StageKey
from pubsub.server.topic.topic import Topic

ROW_BITS: Final = 32
STAGES_MAX: Final = 10_000
"""Stages that a topic holds at once; a further one is answered `full`."""

PIECES_MAX: Final = 100_000
"""Pieces that all stages of a topic have together, and so records' batches that one publish appends."""

IDLE_SECONDS: Final = 24 * 3600.0
"""Silence after which a stage is dropped."""

LEFT_SECONDS: Final = 600.0
"""Silence after which a stage is dropped where the same sink needs its room."""

LOOK_SECONDS: Final = 600.0
"""How often it is looked for idle stages."""

PAUSE_SECONDS: Final = 0.1
"""How soon it is tried again where the disk was too full even to delete."""

DELETED_PIECES: Final = 16
"""Pieces of dropped stages that are deleted in one loop."""


def published(last: int) -> int:
    """How many batches of a sink are published, as `last` of its publisher says."""
    return last >> ROW_BITS


class Staging:
    """What the sinks of one server staged.

    Args:
        state: the server's.
        next_stage, next_piece: the first free numbers.
        dropped: number and pieces of stages that are nobody's.
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
        """Rows of a stage that come next; how many it has."""
        state, heard = self._state, self._state.stamps.reading(now)
        stage = topic.stages.get((publisher, rows.batch, rows.attempt))
        if stage is None:
            stage = self._open(topic.number, Stage(0, publisher, rows.batch, rows.attempt, heard))
        topic.keep(stage, self._piece(stage, heard, rows.first, rows.count, rows.checksum, rows.body))
        state.counters["rows_staged"] += rows.count
        return stage.rows

    def _open(self, topic: int, stage: Stage) -> Stage:
        """Give a stage its number, and a row that says of which topic it is; 0: none's yet."""
        stage.number, self._next_stage = self._next_stage, self._next_stage + 1
        self._state.uncommitted.rows.append(
            c.StageOpened(stage.number, topic, stage.publisher, stage.batch, stage.attempt, stage.heard)
        )
        return stage

    def _piece(
        self, stage: Stage, heard: int, first: int, count: int, checksum: int, body: bytes | memoryview
    ) -> Piece:
        """Give a piece of a stage its number, and its row."""
        stage.heard = heard
        piece = Piece(self._next_piece, first, count, checksum, len(body))
        self._next_piece += 1
        self._state.uncommitted.rows.append(
            c.PieceStaged(stage.number, piece.id, first, count, checksum, stage.heard, body)
        )
        return piece

    # What is dropped

    def drop_published(self, topic: Topic) -> None:
        """Drop the stages of batches that are published."""
        for stage in list(topic.stages.values()):
            if published(topic.last.get(stage.publisher, 0)) > stage.batch:
                self._drop(topic, stage)

    def drop_outdone(self, topic: Topic, publisher: int, batch: int, named: Collection[str]) -> None:
        """Drop what was staged of a batch before what counts of it: no later publish will name it.

        What was staged since stays: this publish may be a late repeat, and the batch be written again by now.
        """
        tried = [stage for stage in topic.stages.values() if (stage.publisher, stage.batch) == (publisher, batch)]
        newest = max((stage.heard for stage in tried if stage.attempt in named), default=0)
        for stage in tried:
            if stage.attempt not in named and stage.heard < newest:
                self._drop(topic, stage)

    def make_room(self, topic: Topic, key: StageKey, now: float) -> bool:
        """Drop what the same sink staged and left: tries that no publish came for would keep out the one that counts.

        Args:
            key: of the stage that is being written.

        Returns:
            Whether there was any.
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
        """Delete stages that are nobody's any more."""
        for stage in stages:
            self._state.uncommitted.rows.append(c.StageDropped(stage.number))
            self._dropped.append((stage.number, len(stage.pieces)))
            self._state.uncommitted.undo(self._dropped.pop)

    def tick(self, now: float) -> list[c.Change]:
        """Drop stages that were silent for long, and delete some of what was dropped."""
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
        """When `tick` has something to do."""
        return self._paused_until if self._dropped else self._look_at

    def pause(self, now: float) -> None:
        """The loop was undone: nothing was deleted, and it is not to be tried again at once."""
        self._paused_until = now + PAUSE_SECONDS

    # A topic that moves

    def arrived(
        self,
        stages: dict[StageKey, Stage],
        key: StageKey,
        heard: int,
        rows: Iterable[tuple[int, int, int, bytes | memoryview]],
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
            stage.add(self._piece(stage, heard, first, count, checksum, body))

    def merge(self, topic: Topic, stages: Iterable[Stage]) -> None:
        """A topic was merged with one that came with these stages: of two with one key the longer one stays."""
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
        # With more than a topic may have it could be given to nobody any more: what was silent for longest goes.
        pieces = sum(len(stage.pieces) for stage in topic.stages.values())
        for stage in sorted(topic.stages.values(), key=lambda one: one.heard):
            if pieces <= PIECES_MAX:
                break
            pieces -= len(stage.pieces)
            self._drop(topic, stage)
