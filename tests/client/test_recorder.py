"""The record of a client, against a real proxy and a real server."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import Message, Transaction
from pubsub.client.storage.recorder import RecordFile
from pubsub.embedded import Embedded
from pubsub.errors import InDoubt, StorageError
from tests.client.opened import bodies

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


@pytest.fixture
def name() -> str:
    return f"client{next(_names)}"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record.jsonl"


class Sink:
    """Takes lines, or fails while `broken`."""

    def __init__(self) -> None:
        self.text = b""
        self.broken = False
        self.closed = False

    def write(self, lines: bytes | bytearray) -> int:
        if self.broken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.text += lines
        return len(lines)

    def close(self) -> None:
        self.closed = True

    def lines(self, *kinds: str) -> list[dict[str, Any]]:
        return parsed(self.text.decode(), kinds)


def parsed(text: str, kinds: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if not kinds or line["kind"] in kinds]


def read(record: Path, *kinds: str) -> list[dict[str, Any]]:
    return parsed(record.read_text(), kinds)


def brief(lines: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(line.get(key) for key in keys) for line in lines]


def counters(lines: list[dict[str, Any]]) -> list[int]:
    return [counter for line in lines for counter in range(line["first"], line["first"] + line["count"])]


def test_a_put_of_many_and_its_result_are_one_line_each(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    with cluster.client(name, recorder=record) as client:
        numbers = client.put_many(topic, [b"x"] * 1000)
        publisher = client.publisher_id
    assert brief(read(record, "put"), "topic", "publisher", "first", "count", "result") == [
        (topic, publisher, numbers[0], 1000, "begun"),
        (topic, publisher, numbers[0], 1000, "acknowledged"),
    ]
    assert {(line["client"], line["session"]) for line in read(record)} == {(name, read(record)[0]["session"])}
    places = [line["n"] for line in read(record)]
    assert places == sorted(set(places))


def test_puts_of_a_publisher_and_of_a_transaction_are_recorded(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    with cluster.client(name, recorder=record) as client:
        with client.publisher(topic, records=10) as publisher:
            tickets = [publisher.put(b"x") for _ in range(25)]
        with client.transaction() as transaction:
            several = client.put_many(topic, [b"y"] * 3, transaction=transaction)
        client.flush()
    wanted = [*[ticket.counter for ticket in tickets], *several]
    begun, done = ([line for line in read(record, "put") if line["result"] == result] for result in
                   ("begun", "acknowledged"))  # fmt: skip
    assert counters(begun) == counters(done) == wanted


def test_a_put_is_recorded_before_it_is_sent(cluster: Embedded, name: str, topic: str) -> None:
    sink = Sink()
    with cluster.client(name, recorder=sink) as client:
        seen: list[int] = []
        send = client._session.send
        client._session.send = lambda: (seen.append(len(sink.lines("put"))), send())[1]  # type: ignore[method-assign]
        client.put(topic, b"x")
    assert seen
    assert seen[0] == 1


def test_a_put_in_doubt_is_taken_up_by_the_next_start(
    cluster: Embedded, name: str, topic: str, record: Path, tmp_path: Path
) -> None:
    nowhere = ["tcp://127.0.0.1:9"]
    with cluster.client(name, recorder=record, proxies=nowhere) as client, pytest.raises(InDoubt):
        client.put(topic, b"x", timeout=0.1)
    assert [line["result"] for line in read(record, "put")] == ["begun", "in_doubt", "in_doubt"]
    record.unlink()
    with cluster.client(name, recorder=record) as client:
        client.flush()
    assert [line["result"] for line in read(record, "put")] == ["unfinished", "acknowledged"]
    record.unlink()
    with cluster.client(name, recorder=record, proxies=nowhere) as client:
        with suppress(InDoubt):
            client.put(topic, b"y", timeout=0.1)
        client.discard(topic)
    (before,) = read(record, "put_before")
    lines = read(record, "put")
    assert [line["result"] for line in lines] == ["begun", "in_doubt", "discarded"]
    assert before["first"] < lines[0]["first"]


def test_messages_taken_together_are_one_line(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        numbers = [*client.put_many(topic, [b"x"] * 100), *[client.put(topic, b"y").counter for _ in range(3)]]
        got: list[Message] = []
        while len(got) < 103:
            got += client.get_many(topic, timeout=10)
    lines = read(record, "delivery")
    assert counters(lines) == numbers
    assert len(lines) <= 4
    assert brief(lines[:1], "publisher", "log", "offset", "handler", "result") == [
        (got[0].publisher, *got[0].position, False, "taken")
    ]


def test_deliveries_of_a_handler_are_marked_and_dead_letters_differ(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    def handle(message: Message, transaction: Transaction) -> None:
        if message.body == b"bad":
            raise ValueError

    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        numbers = client.put_many(topic, [b"a", b"b", b"bad", b"c"])
        taken = 0
        while taken < 4:
            with suppress(ValueError):
                taken += client.process(topic, handle, timeout=10)
            taken = sum([line["count"] for line in read(record, "delivery")])
    lines = read(record, "delivery")
    assert brief(lines, "first", "count", "handler", "result") == [
        (numbers[0], 2, True, "taken"),
        (numbers[2], 1, True, "dead_letter"),
        (numbers[3], 1, True, "taken"),
    ]


def test_only_returned_messages_of_an_iteration_are_recorded_in_order(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        numbers = client.put_many(topic, [b"x"] * 20)
        messages = client.messages(topic, timeout=10)
        assert [next(messages).counter for _ in range(5)] == list(numbers[:5])
        assert client.get(topic, timeout=10).counter == numbers[5]  # type: ignore[union-attr]
        messages.close()
    lines = sorted(read(record, "delivery"), key=lambda line: line["n"])
    assert counters(lines) == list(numbers[:6])


def test_an_iteration_still_open_at_the_end_is_recorded(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    client = cluster.client(name, recorder=record)
    client.subscribe(topic)
    numbers = client.put_many(topic, [b"x"] * 20)
    messages = client.messages(topic, timeout=10)
    next(messages)
    client.close()
    messages.close()
    assert counters(read(record, "delivery")) == [numbers[0]]


def test_subscribing_is_recorded_at_the_request_and_at_the_answer(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        client.subscribe(topic)  # It is already: nothing is asked.
    with cluster.client(name, recorder=record) as client:
        client.unsubscribe(topic)
    with cluster.client(name, recorder=record):
        pass
    lines = read(record, "subscription")
    assert brief(lines, "on", "result") == [
        (True, "asked"), (True, "answered"), (True, "known"), (False, "asked"), (False, "answered"), (False, "known"),
    ]  # fmt: skip
    assert lines[0]["at"] <= lines[1]["at"]
    assert lines[1]["log"] == lines[2]["log"]


def test_a_continued_subscription_and_doubtful_messages_are_marked(
    cluster: Embedded, name: str, topic: str, record: Path, tmp_path: Path
) -> None:
    with cluster.client(name, directory=tmp_path / "a", recorder=record) as lost:
        lost.subscribe(topic, fresh=True)
        lost.put_many(topic, [b"1", b"2", b"3"])
        assert lost.get(topic, timeout=10) is not None
        with cluster.client(name, directory=tmp_path / "b", recorder=record) as client:
            client.subscribe(topic)
            client.put(topic, b"4")
            found = []
            while not found or found[-1].body != b"4":
                found += client.get_many(topic, timeout=10)
    asked = [line for line in read(record, "subscription") if line["result"] == "asked"]
    assert ["continues" in line for line in asked] == [False, True]
    marked = [line["count"] for line in read(record, "delivery")[1:] if line.get("doubtful")]
    assert sum(marked) == sum(message.doubtful for message in found) == len(found) - 1


def test_an_unanswered_subscription_is_unsettled_at_the_next_start(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    for _ in range(2):
        with cluster.client(name, recorder=record, proxies=["tcp://127.0.0.1:9"]) as client, suppress(Exception):
            client.subscribe(topic, timeout=0.05)
    assert [line["result"] for line in read(record, "subscription")] == ["asked", "unsettled"]


def test_a_start_records_earlier_deliveries(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        numbers = client.put_many(topic, [b"x"] * 3)
        while client.get_many(topic, timeout=1):
            continue
        publisher = client.publisher_id
    with cluster.client(name, recorder=record):
        pass
    assert brief(read(record, "taken_before", "put_before"), "kind", "topic", "publisher", "first") == [
        ("taken_before", topic, publisher, numbers[-1]),
        ("put_before", topic, publisher, numbers[-1]),
    ]


def test_a_topic_that_has_nothing_more_is_drained(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client.get(topic, timeout=10) is not None
        deadline = time.monotonic() + 60
        while not read(record, "drained"):  # The service answers when it has held the request for long enough.
            assert client.get(topic, timeout=0.3) is None
            assert time.monotonic() < deadline
    lines = read(record, "put", "drained")
    assert [line["kind"] for line in lines][:3] == ["put", "put", "drained"]
    assert lines[1]["at"] < lines[2]["at"]


def test_a_subscriber_with_untaken_messages_is_not_drained(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    with cluster.client(name, recorder=record) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"x", b"y"])
        assert client.get(topic, timeout=10) is not None  # The other one is here and not taken.
    assert read(record, "drained") == []


def test_an_unwritable_record_does_not_stop_the_client(
    cluster: Embedded, name: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink()
    client = cluster.client(name, recorder=sink)
    sink.broken = True
    with caplog.at_level(logging.WARNING):
        client.subscribe(topic)
        numbers = [client.put(topic, b"x").counter for _ in range(3)]
        assert [client.get(topic, timeout=10).counter for _ in numbers] == numbers  # type: ignore[union-attr]
    assert "No space left" in client.record_problem
    assert sum("cannot be written" in line.message for line in caplog.records) == 1
    assert sink.lines("put", "delivery") == []
    sink.broken = False
    client.put(topic, b"y")
    assert client.record_problem == ""
    assert counters(sink.lines("delivery")) == numbers  # Nothing is missing: it was kept.
    assert sink.lines("gap") == []
    client.close()
    assert not sink.closed


def test_dropped_lines_are_counted_once_writing_works_again(
    cluster: Embedded, name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsub.client.storage.recorder.KEPT_BYTES_MAX", 10)
    sink = Sink()
    with cluster.client(name, recorder=sink) as client:
        client.subscribe(topic)
        first = client.put(topic, b"x").counter
        sink.broken = True
        numbers = [client.put(topic, b"x").counter for _ in range(3)]
        taken = [client.get(topic, timeout=10).counter for _ in range(4)]  # type: ignore[union-attr]
        assert taken == [first, *numbers]
        sink.broken = False
        last = client.put(topic, b"z").counter
    lines = sink.lines()
    gaps = [line for line in lines if line["kind"] == "gap"]
    assert gaps[0]["count"] > 6
    # The put that made it work again was begun while lines were dropped, so it may be among them.
    assert [(line["first"], line["first"] + line["count"] - 1) for line in gaps[1:]] == [(numbers[1], last)]
    before = [line for line in lines if line["kind"] == "taken_before" and line["n"] > gaps[0]["n"]]
    assert [line["first"] for line in before] == [numbers[-1]]
    assert client.record_problem == ""


def test_the_end_of_a_client_reports_the_lines_missing_in_its_record(
    cluster: Embedded, name: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.client(name, recorder="/dev/full") as client:
        client.put(topic, b"x")
    assert "lines are missing" in client.record_problem
    assert any("its record lacks" in line.message for line in caplog.records)


def test_a_record_that_cannot_be_opened_is_an_error_before_anything_happens(
    cluster: Embedded, name: str, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="cannot be recorded to: No such file"):
        cluster.client(name, recorder=tmp_path / "none" / "record.jsonl")
    cluster.client(name).close()  # Its state directory is free.


def test_an_incomplete_line_is_left_and_the_next_line_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b'{"a":1}\n{"b"')
    sink = RecordFile(path)
    assert sink.write(b'{"c":3}\n') == 8
    sink.close()
    assert path.read_bytes() == b'{"a":1}\n{"b"\n{"c":3}\n'


@pytest.mark.parametrize(("taken", "accepted"), [(3, None), (8, 8), (12, 8), (16, 16)])
def test_a_partial_write_ends_at_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, accepted: int | None
) -> None:
    sink, lines = RecordFile(tmp_path / "record"), b'{"a":1}\n{"b":2}\n'
    import os

    write: Callable[..., int] = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:taken]))
    if accepted is None:
        with pytest.raises(OSError, match="in part only"):
            sink.write(lines)
    else:
        assert sink.write(lines) == accepted
    monkeypatch.undo()
    sink.write(lines[accepted or 0 :] or b'{"c":3}\n')
    whole = []
    for line in (tmp_path / "record").read_bytes().split(b"\n"):
        with suppress(ValueError):
            whole.append(json.loads(line))
    assert whole[:2] == [{"a": 1}, {"b": 2}]
    sink.close()


def test_a_new_publisher_records_its_name_and_its_unfinished_puts(
    cluster: Embedded, name: str, topic: str, record: Path
) -> None:
    with cluster.client(name, recorder=record, proxies=["tcp://127.0.0.1:9"]) as client:
        with suppress(InDoubt):
            client.put(topic, b"x", timeout=0.05)
        before = client.publisher_id
        client.renew()
        after = client.publisher_id
    assert brief(read(record, "put"), "publisher", "result")[:3] == [
        (before, "begun"), (before, "in_doubt"), (after, "unfinished"),
    ]  # fmt: skip


def test_a_client_for_asyncio_records_as_well(cluster: Embedded, name: str, topic: str, record: Path) -> None:
    async def main() -> None:
        async with cluster.async_client(name, recorder=record) as client:
            await client.subscribe(topic)
            await client.put(topic, b"x")
            async for _ in client.messages(topic, timeout=5):
                break
            assert client.record_problem == ""

    asyncio.run(main())
    kinds = [line["kind"] for line in read(record)]
    assert [kind for kind in kinds if kind in {"put", "delivery", "close"}] == ["put", "put", "delivery", "close"]


def test_a_client_without_a_record_has_no_recorder(cluster: Embedded, name: str) -> None:
    with cluster.client(name) as client:
        assert client._session.recorder is None
        assert client._session.core.outbox.on_done is None
        assert client.record_problem == ""


def test_a_seek_is_recorded_with_its_start_and_its_messages_with_the_replay(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    with cluster.client(f"r{tmp_path.name}", recorder=record) as client:
        client.configure(topic, keep="ever")
        client.put_many(topic, [b"1", b"2", b"3"])
        client.subscribe(topic, start="earliest")
        assert bodies(client, topic, 3) == [b"1", b"2", b"3"]
        client.seek(topic, "last:2")
        assert bodies(client, topic, 2) == [b"2", b"3"]
    asked = [line.get("start") for line in read(record, "subscription") if line["result"] == "asked"]
    assert asked == ["@0", "last:2"]
    found = [(line["count"], line.get("replay")) for line in read(record, "delivery")]
    assert [sum(count for count, replay in found if replay == one) for one in (None, 1)] == [3, 2]
