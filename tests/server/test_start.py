"""Where a subscription begins: at the end, at the first record that is held, at a stamp, at a record.

The rule is docs/explanation/get.md, G15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol import Get, Outcome, Position, Status, Subscribe
from pubsub.protocol.names import Start
from pubsub.protocol.transfers import Owners
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delivery import Tally
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import cursor_at
from pubsub.server.topic.topic import Log, Topic
from tests.server.moving import Pair, put, take
from tests.server.named import everything, make
from tests.server.running import Proxy, Running
from tests.server.stage import Stage, bodies
from tests.server.stage import put as put_message

A, B = "a" * 16, "b" * 16
SKEW = 30


class Stamps:
    """A reader of batches whose stamp is a hundred times their offset; `last`: the last one that is stored."""

    last = 5
    bare = 0

    def first_with_body(self, log: int, low: int, high: int) -> int:
        """The batches below `bare` have lost their bytes."""
        return min(max(low, self.bare), high)

    def rows_before(self, log: int, low: int, high: int, rows: int) -> list[tuple[int, int, int, int, int, int]]:
        offsets = range(min(high - 1, self.last), low - 1, -1)
        return [(offset, 1, 1, offset, 100 * offset, 0) for offset in offsets][:rows]

    def stamps(self, log: int, offset: int, rows: int) -> list[tuple[int, int, int, int]]:
        return [(at, 1, 100 * at, 0) for at in range(offset, self.last + 1)][:rows]

    def tally(self, log: int, low: int, high: int, rows: int) -> Tally | None:
        found = self.rows_before(log, low, high, rows)
        if not found:
            return None
        first, stop = found[-1][0], found[0][0] + 1
        return Tally(len(found), len(found), first, stop, 100 * first, 100 * stop - 100, 0, [(1, first, stop - 1)])

    def newest(self, log: int, low: int, offset: int) -> tuple[int, int, int, int] | None:
        return None if self.last < low else (min(offset, self.last), 1, 100 * min(offset, self.last), 0)


def topic() -> Topic:
    """A closed log of which 2 to 5 are held, then the open one, which holds 1 to 3."""
    closed, log = Log(1, A, low=2, end=6), Log(2, B, end=4)
    return Topic(1, "t", log, {A: closed, B: log}, history=(Span(A, 2, 6, 7, 40), Span(B, 1)))


def cursor(start: Start, reader: Any = None) -> Cursor | None:
    return cursor_at(topic(), start, 1_000, SKEW, Stamps() if reader is None else reader)


@pytest.mark.parametrize("start", ["earliest", 1])
def test_a_cursor_begins_behind_batches_that_have_lost_their_bytes(start: Start) -> None:
    reader = Stamps()
    reader.bare = 4
    found = cursor(start, reader)
    assert found is not None
    assert [(span.log, span.low) for span in found.backlog] == [(A, 4), (B, 4)]
    reader.bare = 3
    found = cursor((A, 3), reader)
    assert found is not None
    assert [(span.log, span.low) for span in found.backlog] == [(A, 3), (B, 3)]
    reader.bare = 4
    assert cursor((A, 3), reader) is None


@pytest.mark.parametrize(
    ("start", "since", "acknowledged", "backlog"),
    [
        ("latest", 970, (B, 3), (Span(B, 4),)),
        ("earliest", 0, (A, 1), (Span(A, 2, 6, 7, 40), Span(B, 1))),
        (0, 0, (A, 1), (Span(A, 2, 6, 7, 40), Span(B, 1))),
        (300, 299, (A, 2), (Span(A, 3, 6, 7, 299), Span(B, 3, since=299))),
        (20, 19, (A, 1), (Span(A, 2, 6, 7, 40), Span(B, 1, since=19))),
        (501, 500, (B, 3), (Span(B, 4, since=500),)),
        ((A, 2), 169, (A, 1), (Span(A, 2, 6, 7, 40), Span(B, 2, since=169))),
        ((A, 4), 369, (A, 3), (Span(A, 4, 6, 7, 40), Span(B, 4, since=369))),
        ((B, 3), 269, (A, 2), (Span(A, 3, 6, 7, 269), Span(B, 3))),
        ("last:1", 299, (B, 2), (Span(B, 3),)),
        ("last:3", 99, (B, 0), (Span(B, 1),)),
        ("last:4", 499, (A, 4), (Span(A, 5, 6, 7, 40), Span(B, 1))),
        ("last:9", 199, (A, 1), (Span(A, 2, 6, 7, 40), Span(B, 1))),
    ],
)
def test_a_cursor_begins_at_its_start(
    start: Start, since: int, acknowledged: Position, backlog: tuple[Span, ...]
) -> None:
    assert cursor(start) == Cursor(since, acknowledged, backlog)


@pytest.mark.parametrize("position", [(A, 1), (A, 6), (B, 4), ("c" * 16, 1)])
def test_no_subscription_begins_at_a_position_that_is_not_held(position: Position) -> None:
    assert cursor(position) is None


def test_the_stamp_of_an_unstored_record_is_at_most_its_own() -> None:
    reader = Stamps()
    reader.last = 1
    begun = cursor((B, 3), reader)
    assert begun is not None
    assert begun.since == 69
    reader.last = 0
    begun = cursor((B, 3), reader)
    assert begun is not None
    assert begun.since == 0


# At a server


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def begin(stage: Stage, start: Start, number: int = 5, **more: Any) -> Status:
    return stage.ask(Subscribe("bob", "t", number, number, start=start, **more))


def three(stage: Stage) -> list[int]:
    """Put three records, at three times; the stamps before each."""
    stamps = []
    for number in (1, 2, 3):
        stage.now += 1
        stamps.append(stage.stamp())
        stage.put("t", number, [b"%d" % number])
    return stamps


def received(stage: Stage, answer: Status, number: int = 5) -> list[bytes]:
    assert answer.outcome is Outcome.SUCCESS, answer
    return take(stage, "bob", number)


def test_a_subscription_begins_at_each_kind_of_start(stage: Stage) -> None:
    stamps = three(stage)
    log = stage.core.state.topics["t"].open.id
    expected: list[tuple[Start, list[bytes]]] = [
        ("earliest", [b"1", b"2", b"3"]),
        ("latest", []),
        (stamps[1], [b"2", b"3"]),
        (stamps[0], [b"1", b"2", b"3"]),
        (stage.stamp() + 1, []),
        ((log, 2), [b"2", b"3"]),
        ((log, 3), [b"3"]),
    ]
    for number, (start, records) in enumerate(expected, 5):
        assert received(stage, begin(stage, start, number), number) == records, start
    stage.put("t", 4, [b"4"])
    assert take(stage, "bob", number) == [b"4"]


def test_a_subscription_begins_at_its_start_after_a_restart_too(stage: Stage) -> None:
    stamps = three(stage)
    begin(stage, stamps[1])
    stage.restart()
    assert take(stage, "bob") == [b"2", b"3"]


def test_a_repeat_gets_the_same_answer_though_the_position_is_gone(stage: Stage) -> None:
    three(stage)
    log = stage.core.state.topics["t"].open.id
    first = begin(stage, (log, 2))
    assert take(stage, "bob") == [b"2", b"3"]
    stage.get("bob", "t", (log, 3), 5)
    stage.core.state.topics["t"].trim(stage.core.state.topics["t"].open, 3)
    again = begin(stage, (log, 2))
    assert (first.outcome, again.outcome, again.number) == (Outcome.SUCCESS, Outcome.SUCCESS, 5)
    assert again.position == (log, 3), "it stands where it stood"
    assert begin(stage, (log, 2), 4).outcome is Outcome.SUPERSEDED


def test_a_continued_subscription_keeps_its_position_with_any_start(stage: Stage) -> None:
    three(stage)
    begin(stage, "latest")
    stage.put("t", 4, [b"4"])
    assert received(stage, begin(stage, "earliest", 6, continues=1), 6) == [b"4"]
    stage.unsubscribe("bob", "t", 7)
    assert received(stage, begin(stage, "earliest", 8, continues=1), 8) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("sole_owner", [True, False])
def test_a_start_at_an_unknown_position_makes_no_subscription_and_no_topic(stage: Stage, sole_owner: bool) -> None:
    stage.sole_owner = sole_owner
    callback = stage.say(Subscribe("bob", "t", 5, 5, start=(A, 1)))
    stage.sleep(3)
    answer = stage.answered(callback)
    assert answer.outcome is (Outcome.GONE if sole_owner else Outcome.UNKNOWN)
    assert "t" not in stage.core.state.topics
    stage.put("t", 1, [b"1"])
    callback = stage.say(Subscribe("bob", "t", 5, 5, start=(A, 1)))
    stage.sleep(3)
    log = stage.core.state.topics["t"].open.id
    answer = stage.answered(callback)
    assert (answer.outcome, answer.position) == ((Outcome.GONE, (log, 0)) if sole_owner else (Outcome.UNKNOWN, None))
    assert not stage.core.state.topics["t"].subscriptions


def test_a_stamp_in_the_future_and_a_start_for_calls_are_refused(stage: Stage) -> None:
    three(stage)
    future = stage.stamp() + (int(stage.settings.skew_seconds) + 1) * MICROSECONDS
    assert begin(stage, future).outcome is Outcome.REFUSED
    assert stage.ask(Subscribe("bob", "$calls.x", 5, 5, start="earliest")).outcome is Outcome.REFUSED
    assert not stage.core.state.topics["t"].subscriptions
    assert "$calls.x" not in stage.core.state.topics


def test_a_start_with_an_unreadable_stamp_is_a_retry(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    three(stage)

    def newest(*_: int) -> None:
        raise StoreDamaged("disk", "it cannot be read")

    monkeypatch.setattr(stage.core.state.reader, "newest", newest)
    answer = begin(stage, (stage.core.state.topics["t"].open.id, 2))
    assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "the_store_is_damaged_here")


def test_a_start_without_a_position_asks_no_proxy(stage: Stage) -> None:
    three(stage)
    stage.sent.clear()
    log = stage.core.state.topics["t"].open.id
    for number, start in enumerate(("earliest", "latest", stage.stamp(), (log, 1)), 5):
        assert begin(stage, start, number).outcome is Outcome.SUCCESS
    assert not any(isinstance(out.message, Owners) for out in stage.sent)


def test_a_named_subscription_begins_at_a_stamp_and_at_a_record_too(stage: Stage) -> None:
    stamps = three(stage)
    log = stage.core.state.topics["t"].open.id
    assert make(stage, stamps[1], name="by-stamp").outcome is Outcome.SUCCESS
    assert make(stage, (log, 3), name="by-record").outcome is Outcome.SUCCESS
    assert make(stage, (A, 3), name="nowhere").outcome is Outcome.GONE
    assert everything(stage, name="by-stamp") == [b"2", b"3"]
    assert everything(stage, name="by-record") == [b"3"]


# Over a merge


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, "s1", "s2")
    yield made
    made.close()


@pytest.mark.parametrize(("giver", "receiver"), [("s1", "s2"), ("s2", "s1")])
@pytest.mark.parametrize("start", ["earliest", "middle", "record"])
def test_a_merge_brings_the_messages_of_the_other_server_since_the_start(
    pair: Pair, start: str, giver: str, receiver: str
) -> None:
    for name, publisher in (("s1", "alice"), ("s2", "carl")):
        put(pair[name], publisher, 10, 0, b"%s1" % publisher.encode())
    for stage in pair.stages.values():
        stage.now += 5
    middle = pair["s1"].stamp()
    for name, publisher in (("s1", "alice"), ("s2", "carl")):
        pair[name].now += 1
        put(pair[name], publisher, 11, 10, b"%s2" % publisher.encode())
    log = pair["s1"].core.state.topics["t"].open.id
    starts: dict[str, Start] = {"earliest": "earliest", "middle": middle, "record": (log, 2)}
    assert pair["s1"].ask(Subscribe("bob", "t", 5, 5, start=starts[start])).outcome is Outcome.SUCCESS
    pair.merge(giver, receiver)
    pair.turns(40)
    assert pair.holders() == [receiver]
    found = take(pair[receiver], "bob")
    assert sorted(found) == (
        [b"alice1", b"alice2", b"carl1", b"carl2"] if start == "earliest" else [b"alice2", b"carl2"]
    )
    assert found.index(b"alice2") < found.index(b"carl2"), "its own log comes first"


# By a real process


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


@pytest.fixture
def run(tmp_path: Path, proxy: Proxy) -> Iterator[Callable[[], Running]]:
    running: list[Running] = []

    def start() -> Running:
        running.append(Running(tmp_path, proxy))
        proxy.ready()
        return running[-1]

    yield start
    for server in running:
        server.stop()


def test_a_real_server_reads_the_start_and_obeys(run: Callable[[], Running], proxy: Proxy) -> None:
    server = run()
    for number, body in ((1, b"1"), (2, b"2")):
        assert proxy.ask(put_message("t", number, [body])).outcome is Outcome.SUCCESS
    log = proxy.ask(Subscribe("eve", "t", 5, 5)).log
    starts: list[tuple[Start, list[bytes]]] = [("earliest", [b"1", b"2"]), ((log, 2), [b"2"]), (1, [b"1", b"2"])]
    for number, (start, expected) in enumerate(starts, 5):
        assert proxy.ask(Subscribe("bob", "t", number, number, start=start)).outcome is Outcome.SUCCESS
        assert bodies(proxy.ask(Get("bob", "t", None, number, number, records_max=10))) == expected
    assert proxy.ask(Get("eve", "t", None, 5, 5, records_max=10)).outcome is Outcome.EMPTY
    assert server.error is None


@pytest.mark.parametrize("named", [False, True])
def test_the_backlog_of_a_start_before_the_end_counts_at_once(tmp_path: Path, named: bool) -> None:
    stage = Stage(tmp_path, backlog_bytes_max=1_000)
    for counter in (1, 2):  # Nobody waits for them.
        assert stage.put("t", counter, [b"x" * 600], previous=counter - 1).outcome is Outcome.SUCCESS
    more = {"name": "n"} if named else {}
    assert begin(stage, "earliest", **more).outcome is Outcome.SUCCESS
    assert stage.put("t", 3, [b"x" * 300], previous=2).reason == "backlog_bytes_max"
    stage.close()
