"""One turn of a server's loop over sockets in memory: how much it handles before it commits, and whose messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from pubsub.base.limits import TRAIN_ROWS_MAX
from pubsub.messenger.framing import pack
from pubsub.messenger.sockets import Frames
from pubsub.protocol import Heartbeat, Message, encode
from pubsub.server import arrived
from pubsub.server import loop as loop_module
from pubsub.server.loop import DRAIN_MAX, Loop
from tests.server.stage import PROXIES, Stage, put
from tests.server.test_trains import chain, train

MESSAGES_MAX = DRAIN_MAX * len(PROXIES)
"""That are handled in one turn."""


class Memory:
    """Sockets that are queues: what waits in each is what the test put there."""

    def __init__(self) -> None:
        self.opened: list[deque[list[bytes]]] = []
        self.sent: list[tuple[Any, list[Any]]] = []

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
        self.sent.append((sock, frames))
        return True


class Turning:
    """A loop on the stage's server, and what waits at its proxies.

    Attributes:
        handled: the origin of each message that was handled.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.sockets = stage, Memory()
        self.handled: list[bytes] = []
        handle = stage.group_commit.handle

        def noting(link: int | str, frames: Frames, now: float, speaker: str | None = None) -> int:
            self.handled.append(bytes(frames[0]))
            return handle(link, frames, now, speaker)

        stage.group_commit.handle = noting  # type: ignore[method-assign]
        self.loop = Loop(stage.settings, stage.group_commit, self.sockets, "listener", lambda: None)

    def send(self, message: Message, origin: bytes = b"cX", *, proxy: int = 0, callback: int = 9) -> None:
        head, body = encode(message)
        waiting = self.sockets.opened[self.loop.dealers[proxy]]
        waiting.append([origin, pack(0, callback, 0) + head, bytes(body)])

    def turn(self) -> int:
        """One turn; how many messages it has handled."""
        before = len(self.handled)
        self.loop.turn(set(self.loop.dealers), self.stage.now)
        return len(self.handled) - before

    def answers(self, proxy: int = 0) -> list[bytes]:
        """The origins of those to whom something was sent through a proxy, and forget it."""
        mine = [frames[0] for sock, frames in self.sockets.sent if sock == self.loop.dealers[proxy]]
        self.sockets.sent = []
        return mine


@pytest.fixture
def turning(stage: Stage) -> Iterator[Turning]:
    made = Turning(stage)
    yield made
    made.loop.close()


def test_a_turn_takes_so_many_messages(turning: Turning) -> None:
    for counter in range(1, MESSAGES_MAX + 11):
        turning.send(put("t", counter))
    assert turning.turn() == MESSAGES_MAX
    assert turning.turn() == 10
    assert turning.stage.core.state.topics["t"].open.end == MESSAGES_MAX + 11


def test_a_turn_takes_trains_by_their_rows(turning: Turning) -> None:
    trains = 20
    for number in range(trains):
        first = 1 + number * TRAIN_ROWS_MAX
        turning.send(train(*chain(*range(first, first + TRAIN_ROWS_MAX), previous=first - 1)))
    assert turning.turn() == MESSAGES_MAX // TRAIN_ROWS_MAX
    assert turning.turn() == MESSAGES_MAX // TRAIN_ROWS_MAX
    assert turning.turn() == trains - 2 * (MESSAGES_MAX // TRAIN_ROWS_MAX)
    assert turning.stage.core.state.topics["t"].open.end == trains * TRAIN_ROWS_MAX + 1


def test_the_last_train_of_a_turn_may_go_beyond(turning: Turning) -> None:
    for counter in range(1, MESSAGES_MAX):
        turning.send(put("t", counter))
    turning.send(train(*chain(*range(MESSAGES_MAX, MESSAGES_MAX + TRAIN_ROWS_MAX), previous=MESSAGES_MAX - 1)))
    turning.send(put("t", MESSAGES_MAX + TRAIN_ROWS_MAX))
    assert turning.turn() == MESSAGES_MAX
    assert turning.turn() == 1


def test_a_turn_takes_so_many_bytes(turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "DRAIN_BYTES_MAX", 10_000)
    for counter in range(1, 6):
        turning.send(put("t", counter, [bytes(6_000)]))
    assert [turning.turn() for _ in range(3)] == [2, 2, 1]


# Turns


@pytest.fixture
def shared(turning: Turning) -> Turning:
    """That two clients have used."""
    for origin in (b"cX", b"cY"):
        turning.send(put("first", 1), origin)
    turning.turn()
    turning.answers()
    turning.handled.clear()
    return turning


def produce(turning: Turning, count: int = 10) -> None:
    """Have a producer's window arrive."""
    for counter in range(1, count + 1):
        turning.send(put("t", counter, [bytes(1_000_000)], sender="producer"), b"cP")


def test_a_put_is_answered_in_the_next_loop_though_another_clients_window_arrived_before_it(shared: Turning) -> None:
    produce(shared)
    assert [shared.turn() for _ in range(2)] == [1, 1]
    shared.send(put("u", 1))
    assert shared.turn() == 1
    assert shared.handled == [b"cP", b"cP", b"cX"]
    assert b"cX" in shared.answers()


def test_newcomers_alone_have_every_other_loop_at_most(shared: Turning) -> None:
    produce(shared)
    assert [shared.turn() for _ in range(2)] == [1, 1]
    for number in range(4):
        shared.send(put("u", 1), b"c%d" % number)
        shared.turn()
    assert shared.handled[2:] == [b"c0", b"c1", b"cP", b"c2", b"c3", b"cP"]


def test_a_client_alone_has_large_commits_and_again_when_the_others_have_been_silent_for_a_while(
    turning: Turning,
) -> None:
    produce(turning)
    assert turning.turn() == 10
    turning.send(put("u", 1))
    turning.send(put("u", 1), b"cY")
    turning.turn()
    produce(turning)
    assert turning.turn() == 1
    turning.stage.now += loop_module.SHARED_SECONDS
    assert turning.turn() == 9


def test_what_is_left_has_the_loop_turn_at_once_until_all_is_handled(shared: Turning) -> None:
    produce(shared)
    turns = 0
    while not turns or shared.loop.deadline == float("-inf"):
        shared.loop.turn((), shared.stage.now) if turns else shared.turn()
        turns += 1
    assert turns > 2
    assert [origin for origin in shared.answers() if origin] == [b"cP"] * 10
    assert shared.stage.core.state.topics["t"].open.end == 11


def test_a_mark_is_answered_when_all_that_came_before_it_is_handled_and_what_comes_after_is_not_awaited(
    shared: Turning,
) -> None:
    produce(shared)
    shared.send(Heartbeat("p1", 0), b"", callback=77)
    shared.send(put("u", 1))
    shared.turn()
    while b"" not in shared.handled:
        assert shared.turn()
    assert shared.handled == [*shared.handled[:-1], b""]
    assert shared.handled.count(b"cP") == 10
    assert shared.handled.index(b"cX") < 5


def test_a_proxys_word_does_not_wait_for_what_another_proxy_passed_on(shared: Turning) -> None:
    produce(shared)
    shared.turn()
    shared.send(Heartbeat("p2", 0), b"", proxy=1, callback=77)
    shared.turn()
    assert shared.handled.count(b"") == 1
    assert b"" in shared.answers(proxy=1)


def test_what_came_over_a_socket_goes_with_it(shared: Turning) -> None:
    produce(shared)
    shared.turn()
    before = len(shared.handled)
    shared.stage.core.proxies.reconnect.append(0)
    shared.loop.reconnect()
    assert shared.loop.deadline > float("-inf")
    assert shared.turn() == 0
    shared.send(put("t", before + 1, [b"again"], sender="producer", previous=before), b"cQ")
    assert shared.turn() == 1
    produce(shared)
    shared.turn()
    shared.loop.connect_anew("listener", shared.stage.now)
    assert shared.turn() == 0


def test_a_proxy_is_heard_though_what_it_passed_on_waits(turning: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "DRAIN_MAX", 0)
    stage = turning.stage
    stage.now += stage.settings.patience_seconds
    turning.send(put("u", 1))
    turning.loop.turn({turning.loop.dealers[0]}, stage.now)
    first, second = stage.core.proxies.all
    assert not turning.handled
    assert first.reconnect_at == stage.now + 2 * stage.settings.patience_seconds
    assert second.reconnect_at < first.reconnect_at


def test_beyond_its_room_what_a_proxy_passed_on_waits_in_its_socket(
    turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrived, "ARRIVED_MAX", 3)
    monkeypatch.setattr(loop_module, "DRAIN_BYTES_MAX", 1)
    monkeypatch.setattr(loop_module, "SHARED_BYTES_MAX", 1)
    produce(turning)
    turning.send(put("u", 1), proxy=1)
    turning.turn()
    assert [len(turning.sockets.opened[dealer]) for dealer in turning.loop.dealers] == [7, 0]
    for _ in range(10):
        turning.turn()
    assert turning.handled.count(b"cP") == 10


def test_a_put_is_measured_from_when_it_was_taken_from_its_socket(
    turning: Turning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "DRAIN_MAX", 0)
    stage = turning.stage
    stage.group_commit.measure(lambda: stage.now)
    turning.send(put("u", 1))
    turning.turn()
    monkeypatch.undo()
    stage.now += 0.5
    turning.turn()
    measures = stage.core.state.measures
    assert measures is not None
    assert measures.puts.counted().total == pytest.approx(0.5)
