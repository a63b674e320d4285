"""The measures of a server: commits, puts and deliveries, by a clock that the test moves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from zlib import crc32

import pytest

from pubsub.base.histograms import Counted, Histogram
from pubsub.messenger.framing import pack
from pubsub.protocol import Get, Outcome, Put, Status, encode, encode_batch
from pubsub.server.loop import observe
from pubsub.server.state.measures import Measures, Timing
from pubsub.server.state.replies import Outgoing
from tests.server.stage import STORE, Stage


class Measured(Stage):
    """A stage that measures; each look at its clock is `step` seconds after the one before."""

    step = 0.01

    def open(self) -> None:
        super().open()
        self.clock = self.now
        self.group_commit.measure(self.tick)
        assert self.core.state.measures is not None
        self.measures = self.core.state.measures

    def tick(self) -> float:
        self.clock += self.step
        return self.clock

    def turn(self, *messages: Any) -> list[Outgoing]:
        """One turn as the loop does it."""
        self.clock = self.now
        self.measures.turn(self.now)
        for callback, message in enumerate(messages, 20):
            head, body = encode(message)
            self.group_commit.handle(0, [b"cX", pack(1, callback, 0) + head, body], self.now)
        self.core.tick(self.now)
        self.store.fail = self.fail_commit
        self.group_commit.commit(self.now)
        self.store.fail = False
        outgoing = self.group_commit.outgoing(self.now)
        observe(outgoing, self.tick())
        sent = [out for out, _ in outgoing]
        self.answer_as_proxies(sent)
        return sent


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made = Measured(tmp_path)
    yield made
    made.close()


def put(counter: int, count: int = 1, topic: str = "t", **fields: Any) -> Put:
    body = encode_batch([b"x"] * count)
    return Put("ann", topic, counter, STORE, count, counter - 1, crc32(body), body=body, **fields)


def values(counted: Counted) -> list[tuple[float, int]]:
    """The bounds within which something fell, and how much."""
    bounds = (*counted.bounds, float("inf"))
    return [(bound, count) for bound, count in zip(bounds, counted.counts, strict=True) if count]


def test_a_commit_is_measured_with_its_requests_and_records(stage: Measured) -> None:
    stage.turn(put(1, 3), put(4, 2))
    measures = stage.measures
    assert values(measures.commits.counted()) == [(0.01, 1)] or values(measures.commits.counted()) == [(0.025, 1)]
    assert values(measures.requests.counted()) == [(2, 1)]
    assert values(measures.records.counted()) == [(5, 1)]


def test_a_turn_without_a_commit_counts_no_shared_requests(stage: Measured) -> None:
    stage.turn(Get("bob", "t", None, 1, 1))
    assert values(stage.measures.requests.counted()) == []
    stage.turn(put(1), Get("bob", "t", None, 1, 1))
    assert stage.measures.requests.counted().total == 2


def test_a_put_is_measured_until_its_answer_is_sent(stage: Measured) -> None:
    stage.turn(put(1), put(2))
    counted = stage.measures.puts.counted()
    assert sum(counted.counts) == 2
    assert counted.total == pytest.approx(2 * 3 * stage.step)  # two looks for the commit, one for the sending


def test_puts_that_are_answered_together_count_once(stage: Measured) -> None:
    stage.turn(put(1, cumulative=1), put(2, cumulative=1))
    assert sum(stage.measures.puts.counted().counts) == 1


def test_a_put_that_waits_for_a_whole_topic_is_measured_from_its_arrival(stage: Measured) -> None:
    stage.turn(put(1, sole_owner=1))
    assert sum(stage.measures.puts.counted().counts) == 0
    stage.now += 0.5
    stage.turn()
    counted = stage.measures.puts.counted()
    assert sum(counted.counts) == 1
    assert counted.total > 0.5


def test_a_put_that_was_not_taken_is_not_measured(stage: Measured) -> None:
    stage.turn(put(1))
    stage.turn(put(1), put(9))  # a repeat, and one with a gap before it: previous is 8
    assert sum(stage.measures.puts.counted().counts) == 1


def test_a_reverted_loop_measures_no_put_and_no_commit(stage: Measured) -> None:
    stage.fail_commit = True
    sent = stage.turn(put(1))
    assert [out.message.outcome for out in sent if isinstance(out.message, Status)] == [Outcome.FULL]
    assert sum(stage.measures.puts.counted().counts) == 0
    assert sum(stage.measures.commits.counted().counts) == 0


def test_a_delivery_is_measured_from_the_put_of_its_first_message(stage: Measured) -> None:
    stage.subscribe("bob", "t", 5)
    stage.turn(put(1))
    stage.now += 7.0
    stage.turn(put(2))
    stage.now += 2.0
    stage.turn(Get("bob", "t", None, 5, 5))
    counted = stage.measures.deliveries.counted()
    assert sum(counted.counts) == 1
    assert counted.total == pytest.approx(9.0 + stage.step, abs=0.1)


def test_a_waiting_subscriber_gets_a_message_at_once(stage: Measured) -> None:
    stage.subscribe("bob", "t", 5)
    stage.turn(Get("bob", "t", None, 5, 5, wait_ms=60_000))
    stage.turn(put(1))
    assert stage.measures.deliveries.counted().total < 1.0


def test_a_read_without_a_message_is_no_delivery(stage: Measured) -> None:
    stage.subscribe("bob", "t", 5)
    stage.turn(Get("bob", "t", None, 5, 5))
    assert sum(stage.measures.deliveries.counted().counts) == 0


def test_answers_of_one_turn_are_observed_at_once_and_each_in_its_histogram() -> None:
    puts, gets = Histogram((1.0,)), Histogram((1.0,))
    success, full = Status("s", Outcome.SUCCESS), Status("s", Outcome.FULL)
    one, other, third = Timing(puts, 1.0), Timing(gets, 1.5), Timing(puts, 0.0)
    sent = [
        Outgoing(0, b"", 1, 0, message, timing=timing)
        for message, timing in [(success, one), (full, one), (success, one), (success, None), (success, other),
                                (success, third), (full, other)]
    ]  # fmt: skip
    observe([(out, None) for out in sent], 2.0)
    assert (puts.counted().counts, puts.counted().total) == ((2, 1), 4.0)
    assert gets.counted().total == 0.5


def test_one_turn_has_one_timing() -> None:
    measures = Measures()
    measures.turn(1.0)
    assert measures.put == Timing(measures.puts, 1.0)


# What it costs


def instructions(work: Callable[[], object]) -> int:
    """How many of Python's instructions this takes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def calls(work: Callable[[], object]) -> int:
    """How many functions this calls, of Python's and of C's."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def cost(directory: Path, counted: Callable[[Callable[[], object]], int], measures: bool, puts: int) -> int:
    """What is counted of a turn with so many puts, each its own request of its own publisher."""
    stage = Measured(directory) if measures else Stage(directory)
    stage.core.tick(stage.now)
    bodies = encode_batch([b"x" * 100])
    messages = [
        [b"cX", pack(1, 20, 0) + encode(Put(f"c{n}", "t", 1, STORE, 1, 0, crc32(bodies), body=bodies))[0], bodies]
        for n in range(puts)
    ]
    clock = stage.group_commit.clock

    def turn() -> None:
        if stage.core.state.measures is not None:
            stage.core.state.measures.turn(stage.now)
        for frames in messages:
            stage.group_commit.handle(0, frames, stage.now)
        stage.core.tick(stage.now)
        stage.group_commit.commit(stage.now)
        sent = stage.group_commit.outgoing(stage.now)
        if clock is not None:
            observe(sent, clock())

    found = counted(turn)
    stage.close()
    return found


def test_a_measured_put_costs_about_two_more_calls(tmp_path: Path) -> None:
    """Of a loop that is busy, which is where it counts; the client's share, the proxy's and the fsync's come on top."""
    puts = 64
    # A turn may also count what is done once in a process, or a collection of garbage that tools are told of.
    tries = {
        name: [cost(tmp_path / f"{name}{n}", calls, name == "on", puts) for n in range(3)] for name in ("off", "on")
    }
    without, with_ = min(tries["off"]), min(tries["on"])
    assert 0 < with_ - without < 2.2 * puts, f"of {without / puts:.0f} calls a put"


def test_a_measured_put_costs_few_more_instructions(tmp_path: Path) -> None:
    without, with_ = (cost(tmp_path / name, instructions, name == "on", 64) for name in ("off", "on"))
    assert without < with_ < without + 64 * 50  # of some 2,800 each
