"""The part of a subscriber's spans in one answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import pytest

from pubsub.protocol import Outcome, Records, encode_batch, encode_headers
from pubsub.server.topic import delivery
from pubsub.server.topic.delivery import Answer, Batch, collect
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

A, B = "a" * 16, "b" * 16
PUBLISHERS = ["", "alice/0123456789abcdef", "bob/0123456789abcdef"]


class Shelf:
    """Batches in memory, by log number."""

    def __init__(self) -> None:
        self.logs: dict[int, list[Batch]] = {}
        self.looked_at = 0

    def batches(self, log: int, offset: int, high: int, *, cached: bool = True) -> Iterator[Batch]:
        for batch in self.logs.get(log, []):
            if batch.offset + batch.count > offset and batch.offset < high:
                self.looked_at += 1
                yield batch

    def stamps(self, log: int, offset: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
        raise NotImplementedError

    def total_before(self, log: int, offset: int) -> int | None:
        raise NotImplementedError

    def first_with_body(self, log: int, low: int, high: int) -> int:
        raise NotImplementedError


class Held:
    """A topic of two logs, and what reads from it."""

    def __init__(self) -> None:
        log_a, log_b = Log(1, A), Log(2, B)
        self.topic = Topic(1, "t", log_a, {A: log_a, B: log_b})
        self.shelf = Shelf()

    def put(
        self,
        log: str,
        bodies: list[bytes],
        counter: int,
        publisher: int = 1,
        stamp: int = 100,
        keys: Sequence[bytes] = (),
        headers: Sequence[bytes] = (),
    ) -> Batch:
        body = encode_batch(bodies, keys, headers)
        to = self.topic.logs[log]
        batch = Batch(to.end, len(bodies), publisher, counter, stamp, crc32(body), to.total, body)
        self.shelf.logs.setdefault(to.number, []).append(batch)
        to.end += len(bodies)
        to.total += len(body)
        return batch

    def read(self, *spans: Span, records: int = 100, size: int = 10_000) -> Answer:
        return collect(self.topic, spans, self.shelf, PUBLISHERS, records, size)


@pytest.fixture
def held() -> Held:
    return Held()


def texts(answer: Answer) -> str:
    assert answer.outcome is Outcome.SUCCESS
    assert answer.checksum == crc32(answer.body)
    return b"".join(Records(answer.body).bodies()).decode()


def test_batches_are_delivered_with_their_publishers_and_positions(held: Held) -> None:
    held.put(A, [b"a", b"b"], 10)
    held.put(A, [b"c"], 7, publisher=2, stamp=200)
    answer = held.read(Span(A, 1))
    assert texts(answer) == "abc"
    assert (answer.records, answer.last) == (3, (A, 3))
    runs = Records(answer.body).runs
    assert [(run.log, run.offset, run.publisher, run.counter, run.stamp) for run in runs] == [
        (A, 1, PUBLISHERS[1], 10, 100),
        (A, 3, PUBLISHERS[2], 7, 200),
    ]


def test_reading_begins_and_ends_within_batches(held: Held) -> None:
    held.put(A, [b"a", b"b", b"c"], 10)
    held.put(A, [b"d", b"e"], 13)
    assert texts(held.read(Span(A, 2))) == "bcde"
    assert texts(held.read(Span(A, 2, 5))) == "bcd"
    answer = held.read(Span(A, 2), records=1)
    assert (texts(answer), answer.last) == ("b", (A, 2))
    run = Records(answer.body).runs[0]
    assert (run.offset, run.counter) == (2, 11)


def test_spans_are_read_one_after_the_other(held: Held) -> None:
    held.put(A, [b"a", b"b"], 10)
    held.put(B, [b"x", b"y"], 20)
    answer = held.read(Span(B, 2, 3), Span(A, 1))
    assert (texts(answer), answer.last) == ("yab", (A, 2))


def test_empty_spans_and_missing_logs_give_no_records(held: Held) -> None:
    held.put(A, [b"a"], 10)
    assert held.read(Span(A, 2)).outcome is Outcome.EMPTY
    assert held.read().outcome is Outcome.EMPTY
    assert texts(held.read(Span("c" * 16, 1, 9), Span(A, 1))) == "a"


def test_bytes_limit_an_answer_but_one_record_always_goes(held: Held) -> None:
    held.put(A, [b"a" * 10, b"b" * 10, b"c" * 10], 10)
    held.put(A, [b"d" * 10, b"e" * 10], 13)
    assert [held.read(Span(A, 1), size=size).records for size in (1, 10, 19, 20, 29, 30, 40, 1000)] == [
        *(1, 1, 1, 2, 2, 3),
        *(4, 5),
    ]
    assert held.read(Span(A, 2), size=10).records == 1


def test_counters_of_earlier_messages_are_skipped(held: Held) -> None:
    held.topic.watermarks[3] = {1: 11}
    held.put(B, [b"a", b"b", b"c"], 10)
    held.put(B, [b"x"], 5, publisher=2)
    held.put(B, [b"d"], 13)
    assert texts(held.read(Span(B, 1, 6, watermark=3))) == "cxd"
    held.topic.watermarks[3] = {1: 12, 2: 5}
    assert texts(held.read(Span(B, 1, 6, watermark=3))) == "d"


def test_messages_from_before_the_subscription_are_skipped(held: Held) -> None:
    held.put(B, [b"a"], 1, stamp=100)
    held.put(B, [b"b"], 2, stamp=101)
    assert texts(held.read(Span(B, 1, 3, since=100))) == "b"
    assert held.read(Span(B, 1, 3, since=101)).outcome is Outcome.EMPTY


def test_skipped_messages_are_passed_if_none_is_delivered(held: Held) -> None:
    held.topic.watermarks[3] = {1: 10}
    held.put(B, [b"a"], 10)
    held.put(A, [b"b"], 10)
    assert held.read(Span(B, 1, 2, watermark=3), Span(A, 1, watermark=3)).rest == (Span(A, 2, watermark=3),)
    assert held.read(Span(B, 1, 2, watermark=3)).rest == ()
    assert held.read(Span(A, 2)).rest == (Span(A, 2),)
    held.put(A, [b"c"], 11)
    answer = held.read(Span(B, 1, 2, watermark=3), Span(A, 1, watermark=3))
    assert (texts(answer), answer.rest) == ("c", None)


@pytest.mark.parametrize("how", ["checksum", "shorter", "count", "publisher", "gone"])
def test_a_bad_batch_is_lost_completely(held: Held, how: str) -> None:
    held.put(A, [b"a"], 1)
    bad = held.put(A, [b"b", b"c"], 2)
    held.put(A, [b"d"], 4)
    if how == "checksum":
        bad.body = b"\0" * len(bad.body or b"")
    elif how == "shorter":
        bad.body, bad.checksum = b"abc", crc32(b"abc")
    elif how == "count":
        bad.body = encode_batch([b"b"])
        bad.checksum = crc32(bad.body)
    elif how == "publisher":
        bad.publisher = len(PUBLISHERS)
    else:
        bad.body = None
    assert texts(held.read(Span(A, 1))) == "a"
    answer = held.read(Span(A, 2))
    assert (answer.outcome, answer.first, answer.last) == (Outcome.LOST, (A, 2), (A, 3))
    assert answer.damaged == ([] if how == "gone" else [(1, 2)])
    assert held.read(Span(A, 3)).first == (A, 3)
    assert texts(held.read(Span(A, 4))) == "d"


def test_a_bad_batch_that_is_skipped_anyway_is_not_lost(held: Held) -> None:
    held.topic.watermarks[1] = {1: 5}
    held.put(B, [b"a"], 5).body = None
    held.put(B, [b"b"], 6)
    assert texts(held.read(Span(B, 1, 3, watermark=1))) == "b"
    held.put(B, [b"c"], 7, stamp=50).body = None
    assert held.read(Span(B, 3, 4, since=50)).outcome is Outcome.EMPTY


@pytest.mark.parametrize(
    ("missing", "first", "last"), [({1}, 1, 1), ({2, 3}, 2, 3), ({5}, 5, 5), ({1, 2, 3, 4, 5}, 1, 5)]
)
def test_offsets_that_no_batch_holds_are_lost(held: Held, missing: set[int], first: int, last: int) -> None:
    for counter in range(1, 6):
        held.put(A, [b"%d" % counter], counter)
    held.shelf.logs[1] = [batch for batch in held.shelf.logs[1] if batch.offset not in missing]
    answer = held.read(Span(A, first))
    assert (answer.outcome, answer.first, answer.last) == (Outcome.LOST, (A, first), (A, last))


def test_a_long_skipped_range_is_checked_in_pieces(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    held.topic.watermarks[1] = {1: 10}
    for counter in range(1, 13):
        held.put(B, [b"%d" % (counter % 10)], counter)
    held.put(A, [b"a"], 1)
    spans: tuple[Span, ...] = (Span(B, 1, 13, watermark=1), Span(A, 1))
    for low in (5, 9):
        answer = held.read(*spans)
        assert answer.outcome is Outcome.EMPTY
        assert answer.rest == (Span(B, low, 13, watermark=1), Span(A, 1))
        spans = answer.rest or ()
    assert texts(held.read(*spans)).startswith("12")


def test_an_answer_with_records_ends_at_the_limit_of_checked_batches(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    for counter in range(1, 13):
        held.put(A, [b"%d" % (counter % 10)], counter)
    answer = held.read(Span(A, 1))
    assert (texts(answer), answer.rest) == ("1234", None)


def test_keys_count_for_the_size_of_an_answer() -> None:
    held = Held()
    held.put(A, [b"1", b"2"], 1, keys=[b"k" * 600, b"l" * 600])
    held.put(A, [b"3", b"4"], 3, keys=[b"m", b"n"])
    answer = held.read(Span(A, 1), size=1000)
    assert (answer.last, [run.keys for run in Records(answer.body).runs]) == ((A, 1), [[b"k" * 600]])
    answer = held.read(Span(A, 2), size=1000)
    assert [run.keys for run in Records(answer.body).runs] == [[b"l" * 600], [b"m", b"n"]]


def test_headers_count_for_the_size_of_an_answer_and_are_cut_with_their_records() -> None:
    held = Held()
    one, two, three = (encode_headers({"h": letter * 600}) for letter in (b"1", b"2", b"3"))
    held.put(A, [b"1", b"2"], 1, keys=[b"k", b"l"], headers=[one, two])
    held.put(A, [b"3", b"4"], 3, headers=[three, b""])
    answer = held.read(Span(A, 1), size=1000)
    (run,) = Records(answer.body).runs
    assert (answer.last, run.keys, run.headers) == ((A, 1), [b"k"], [one])
    answer = held.read(Span(A, 2), size=10_000)
    assert [run.headers for run in Records(answer.body).runs] == [[two], [three, b""]]


def test_a_loss_ends_before_a_record_that_the_subscriber_is_not_owed(held: Held) -> None:
    for counter, publisher in ((10, 1), (11, 1), (4, 2), (12, 1)):
        held.put(A, [b"x"], counter, publisher=publisher).body = None
    held.topic.watermarks[3] = {2: 4}
    first = held.read(Span(A, 1, watermark=3))
    assert (first.outcome, first.first, first.last) == (Outcome.LOST, (A, 1), (A, 2))
    second = held.read(Span(A, 3, watermark=3))
    assert (second.outcome, second.first, second.last) == (Outcome.LOST, (A, 4), (A, 4))
