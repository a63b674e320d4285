"""One turn of a server's loop over sockets in memory: how much it takes before it commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from pubsub.base.limits import TRAIN_ROWS_MAX
from pubsub.messenger.framing import pack
from pubsub.messenger.sockets import Frames
from pubsub.protocol import Put, encode
from pubsub.server import loop as loop_module
from pubsub.server.loop import DRAIN_MAX, Loop
from tests.server.stage import Stage, put
from tests.server.test_trains import chain, train


class Memory:
    """Sockets that are queues: what waits in each is what the test put there."""

    def __init__(self) -> None:
        self.opened: list[deque[list[bytes]]] = []

    def dealer(self, address: str) -> Any:
        self.opened.append(deque())
        return len(self.opened) - 1

    to_server = dealer

    def close(self, sock: Any) -> None:
        self.opened[sock].clear()

    def receive(self, sock: Any) -> Frames | None:
        return self.opened[sock].popleft() if self.opened[sock] else None

    def receive_known(self, listener: Any) -> tuple[str | None, Frames] | None:
        return None

    def send(self, sock: Any, frames: list[Any]) -> bool:
        return True


class Turning:
    """A loop on the stage's server, and what waits at its first proxy."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.sockets = stage, Memory()
        self.loop = Loop(stage.settings, stage.group_commit, self.sockets, "listener", lambda: None)
        self.waiting = self.sockets.opened[self.loop.dealers[0]]

    def send(self, message: Put) -> None:
        head, body = encode(message)
        self.waiting.append([b"cX", pack(0, 9, 0) + head, bytes(body)])

    def turn(self) -> int:
        """One turn; how many messages it has taken."""
        before = len(self.waiting)
        self.loop.turn({self.loop.dealers[0]}, self.stage.now)
        return before - len(self.waiting)


@pytest.fixture
def turning(stage: Stage) -> Iterator[Turning]:
    made = Turning(stage)
    yield made
    made.loop.close()


def test_a_turn_takes_a_limited_number_of_messages(turning: Turning) -> None:
    for counter in range(1, DRAIN_MAX + 11):
        turning.send(put("t", counter))
    assert turning.turn() == DRAIN_MAX
    assert turning.turn() == 10
    assert turning.stage.core.state.topics["t"].open.end == DRAIN_MAX + 11


def test_a_turn_takes_trains_by_their_rows(turning: Turning) -> None:
    trains = 10
    for number in range(trains):
        first = 1 + number * TRAIN_ROWS_MAX
        turning.send(train(*chain(*range(first, first + TRAIN_ROWS_MAX), previous=first - 1)))
    assert turning.turn() == DRAIN_MAX // TRAIN_ROWS_MAX
    assert turning.turn() == DRAIN_MAX // TRAIN_ROWS_MAX
    assert turning.turn() == trains - 2 * (DRAIN_MAX // TRAIN_ROWS_MAX)
    assert turning.stage.core.state.topics["t"].open.end == trains * TRAIN_ROWS_MAX + 1


def test_the_last_train_of_a_turn_may_go_beyond(turning: Turning) -> None:
    for counter in range(1, DRAIN_MAX):
        turning.send(put("t", counter))
    turning.send(train(*chain(*range(DRAIN_MAX, DRAIN_MAX + TRAIN_ROWS_MAX), previous=DRAIN_MAX - 1)))
    turning.send(put("t", DRAIN_MAX + TRAIN_ROWS_MAX))
    assert turning.turn() == DRAIN_MAX
    assert turning.turn() == 1


def test_a_turn_takes_a_limited_number_of_bytes(turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "DRAIN_BYTES_MAX", 10_000)
    for counter in range(1, 6):
        turning.send(put("t", counter, [bytes(6_000)]))
    assert [turning.turn() for _ in range(3)] == [2, 2, 1]
