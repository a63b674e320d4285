"""A chunk as bytes, in both forms: its content round-trips, and invalid bytes are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_BYTES_MAX, ORIGIN_BYTES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol import Outcome
from pubsub.protocol.topic_settings import Amount
from pubsub.server.moves import chunks as module
from pubsub.server.moves import receiving
from pubsub.server.moves.chunks import (
    FORM,
    Batches,
    BatchRow,
    Configured,
    CopiedRow,
    Copies,
    DelayedRow,
    DelayedRows,
    Described,
    Groups,
    Last,
    LogRow,
    Members,
    Moving,
    Ordered,
    Part,
    PieceRow,
    Purged,
    Removed,
    Retries,
    Staged,
    SubscriptionRow,
    Subscriptions,
    Watermark,
    chunks,
    decode,
    encode,
    read,
)
from pubsub.server.storage.store import Store
from pubsub.server.topic.delayed import Delayed
from pubsub.server.topic.purges import Places
from pubsub.server.topic.settings import DEFAULTS, Settings
from pubsub.server.topic.spans import Span
from tests.server.moving import Pair, split, take
from tests.server.test_fields import (
    COPY,
    FULL,
    GROUP,
    MEMBER,
    PARTS,
    PUBLISHERS,
    REMOVAL,
    RETRY,
    SETTINGS,
    full_topic,
)
from tests.server.test_sinks import write

GOLDEN = Path(__file__).parent / "golden"
FORMS = (1, 2)
A, B = "a" * 16, "b" * 16
ALICE = f"alice/{A}"

SPANS = (Span(A, 1, 4, 2, 1, True), Span(B, 1))
CHUNKED: list[Part] = [
    Described(A, {A: LogRow(1, 9, 80, 0), B: LogRow(1, 3, 7, 1)}, SPANS, [B], [], {B: "s2"}),
    Batches(A, [BatchRow(1, 2, ALICE, 3, 9, 5, 0, b"{\n}"), BatchRow(3, 2, ALICE, 5, 9, 5, 8, None)]),
    Batches(A, [BatchRow(5, 1, ALICE, 6, 9, 5, 8, b"")]),
    Staged(ALICE, 3, "try", 8, [PieceRow(0, 1, 5, b"\n"), PieceRow(1, 1, 5, b"")]),
    Configured(Settings(B, 5, (A,), (Amount(6, 7, 8),), (Amount(size=9),), conflict=True)),
    Watermark(3, {ALICE: 4}),
    Last({ALICE: 9, f"carol/{B}": 3}),
    Subscriptions({"bob": SubscriptionRow(5, 6, True, 7, (A, 2), (Span(A, 3),))}),
    Subscriptions({"@all": SubscriptionRow(1, 0, False, 0, (A, 0), ())}),
    Configured(SETTINGS),
    Removed(REMOVAL, {A: PARTS}),
    DelayedRows([DelayedRow(20, ALICE, 3, 2, 5, b"{\n}"), DelayedRow(21, ALICE, 5, 1, 5, b"")]),
    Ordered(A),
    Purged({A: Places(5, 4), B: Places(2)}),
    Groups({"g": GROUP}),
    Members("g", [("w1", A, MEMBER)]),
    Retries("g", [RETRY]),
    Copies("g", [CopiedRow(COPY, b"{\n}")]),
]
DATA = {form: [encode(part, form) for part in CHUNKED] for form in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_every_part_round_trips(form: int) -> None:
    assert {type(part) for part in CHUNKED} == set(Part.__args__)
    assert [decode(chunk) for chunk in DATA[form]] == CHUNKED
    assert [decode(memoryview(chunk)) for chunk in DATA[form]] == CHUNKED


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_of_every_chunk_are_unchanged(form: int, tmp_path: Path) -> None:
    """Each line of a file is a chunk as a release sent it; a line that is there stays there."""
    golden = [bytes.fromhex(line) for line in (GOLDEN / f"chunks_{form}.txt").read_text().splitlines()]
    store = Store(tmp_path)
    with store.guarded():
        store.apply(FULL)
    topic = full_topic()
    del topic.subscriptions["@job"]  # The topic had none yet.
    topic.settings, topic.delayed = DEFAULTS, Delayed()  # And no settings, and nothing waited.
    topic.purged.clear()
    topic.groups.clear()
    del topic.subscriptions["%g:1"]
    assert list(chunks(topic, store.reader, PUBLISHERS, form)) == golden
    other = chunks(topic, store.reader, PUBLISHERS, 3 - form)
    assert [decode(chunk) for chunk in golden] == [decode(chunk) for chunk in other]
    store.close()


def test_the_first_byte_distinguishes_the_forms_and_a_newer_form_is_refused() -> None:
    for first, second in zip(DATA[1], DATA[2], strict=True):
        assert (first[:1], second[:2]) == (b"{", bytes([0x92, FORM]))
        assert is_refused(bytes([0x92, FORM + 1]) + second[2:])
    assert encode(CHUNKED[0], FORM + 1) == DATA[2][0]


def is_refused(chunk: bytes) -> bool:
    """Whether a chunk cannot be read; any other error than `DecodeError` ends the test."""
    try:
        decode(chunk)
    except DecodeError:
        return True
    return False


places = st.tuples(st.sampled_from(FORMS), st.integers(0, len(CHUNKED) - 1), st.integers(0, 1_000))


@given(places, st.binary(max_size=6), st.integers(0, 4))
def test_an_invalid_chunk_raises_only_decode_error(place: tuple[int, int, int], junk: bytes, cut: int) -> None:
    form, number, at = place
    data = DATA[form][number]
    at %= len(data)
    is_refused(data[:at] + junk + data[at + cut :])
    assert is_refused(data[:at])
    assert is_refused(data + junk) == bool(junk)


@given(places, st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_makes_another_chunk(place: tuple[int, int, int], bit: int) -> None:
    form, number, at = place
    data = bytearray(DATA[form][number])
    data[at % len(data)] ^= 1 << bit
    is_refused(bytes(data))
    with_topic = Moving()
    for chunk in (DATA[form][0], bytes(data)):
        try:
            read(chunk, with_topic, lambda: 1)
        except DecodeError:
            continue


@given(st.sampled_from([b"", b"{", b"\x92\x02", b"\x92\x02\x93\xa7Batches", b'{"log":']), st.binary(max_size=60))
def test_random_bytes_are_refused(beginning: bytes, data: bytes) -> None:
    is_refused(beginning + data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 200_000,
        b"\x92\x02" + b"\x92" * 200_000,
        b"\x92\x02\x92\xa4Last\xdf\xff\xff\xff\xff",
        b"\x92\x02\x93\xa7Batches\xb0aaaaaaaaaaaaaaaa\xdd\xff\xff\xff\xff",
        b'{"entries":' + b"[" * 200_000 + b"\n",
        b'{"last":[["alice/aaaaaaaaaaaaaaaa",' + b"9" * 5_000 + b"]]}\n",
        b'{"last":[["alice/aaaaaaaaaaaaaaaa",1e999]]}\n',
    ],
    ids=range(7),
)
def test_deeply_nested_or_seemingly_huge_data_is_refused(data: bytes) -> None:
    assert is_refused(data)


BAD: list[Any] = [
    Described("x", {A: LogRow(1, 9, 80, 0)}, (), [], [], {}),
    Described(A, {A.upper(): LogRow(1, 9, 80, 0)}, (), [], [], {}),
    Described(A, {A: LogRow(-1, 9, 80, 0)}, (), [], [], {}),
    Described(A, {A: LogRow(1, 2**63, 80, 0)}, (), [], [], {}),
    Described(A, {A: LogRow(True, 9, 80, 0)}, (), [], [], {}),
    Described(A, {}, (Span("x", 1),), [], [], {}),
    Described(A, {}, (Span(A, 1, -1),), [], [], {}),
    Described(A, {}, (), [A + "\n"], [], {}),
    Described(A, {}, (), [], [""], {}),
    Described(A, {}, (), [], [], {A: ".."}),
    Described(A, {}, (), [], [], {A: "a" * 65}),
    Batches("", []),
    Batches(A, [BatchRow(1, 2, "alice", 3, 9, 5, 0, b"")]),
    Batches(A, [BatchRow(1, 2, f"./{A}", 3, 9, 5, 0, b"")]),
    Batches(A, [BatchRow(1, 2, ALICE + "a", 3, 9, 5, 0, b"")]),
    Batches(A, [BatchRow(1, 2, ALICE, 3, 9, -5, 0, b"")]),
    Staged(ALICE, 3, "a/b", 8, []),
    Staged(ALICE, 3, "try", 8, [PieceRow(0, 1, 5, None)]),  # type: ignore[arg-type]
    Watermark(-3, {}),
    Last({ALICE: -1}),
    Last({"": 1}),
    Subscriptions({"@@a": SubscriptionRow(5, 6, True, 7, (A, 2), ())}),
    Subscriptions({"a b": SubscriptionRow(5, 6, True, 7, (A, 2), ())}),
    Subscriptions({"bob": SubscriptionRow(5, 6, True, 7, ("", 2), ())}),
    Subscriptions({"bob": SubscriptionRow(5, 6, True, 7, (A, -2), ())}),
    Subscriptions({"bob": SubscriptionRow(5, 6, True, -7, (A, 2), ())}),
    Subscriptions({"bob": SubscriptionRow(5, 6, 1, 7, (A, 2), ())}),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", BAD, ids=range(len(BAD)))
def test_an_impossible_part_is_refused(part: Part, form: int) -> None:
    assert is_refused(encode(part, form))


@pytest.mark.parametrize("head", [{}, [], 1, {"odd": 1}, {"stage": [ALICE, 1, "try"], "rows": []}, {"log": A}])
def test_a_line_other_than_a_chunk_is_refused(head: Any) -> None:
    assert is_refused(json.dumps(head).encode() + b"\n")
    assert is_refused(msgspec.msgpack.encode(head))


@pytest.mark.parametrize("size", ["-2", "4", "true", "null", "1.0"])
def test_a_body_of_the_first_form_has_a_possible_length(size: str) -> None:
    data = DATA[1][1]
    assert b",3],[" in data
    assert is_refused(data.replace(b",3],[", b"," + size.encode() + b"],["))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", [0, 1, 3, 6])
def test_the_parts_of_a_chunk_are_limited(part: int, form: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for low, high in ((10, True), (1_000, False)):
        monkeypatch.setattr(module, "LINE_BYTES_MAX", low)
        assert is_refused(DATA[form][part]) is high
    body = bytes(BATCH_BYTES_MAX + ORIGIN_BYTES_MAX + 1)
    assert is_refused(encode(Batches(A, [BatchRow(1, 2, ALICE, 3, 9, 5, 0, body)]), form))
    assert is_refused(encode(Staged(ALICE, 3, "try", 8, [PieceRow(0, 1, 5, body)]), form))
    monkeypatch.setattr(module, "LINE_BYTES_MAX", 200)
    assert not is_refused(encode(Batches(A, [BatchRow(1, 2, ALICE, 3, 9, 5, 0, body[1:])]), form))


def test_a_chunk_must_follow_the_earlier_ones() -> None:
    moving = Moving()
    logs = {A: LogRow(2, 9, 80, 0)}
    batch, there = (
        BatchRow(2, 7, ALICE, 3, 9, 5, 0, b""),
        Subscriptions({"bob": SubscriptionRow(5, 6, True, 7, (B, 2), ())}),
    )
    for early in (Batches(A, [batch]), Described(B, logs, (), [], [], {})):
        with pytest.raises(DecodeError):
            read(encode(early), moving, lambda: 1)
    assert read(encode(Described(A, logs, (), [], [], {})), moving, lambda: 1) is None
    assert read(encode(Batches(A, [batch])), moving, lambda: 1) == Batches(A, [batch])
    assert read(encode(there), moving, lambda: 1) is None
    for wrong in (
        Described(A, logs, (), [], [], {}),
        Batches(B, [batch]),
        Batches(A, [msgspec.structs.replace(batch, offset=1)]),
        Batches(A, [msgspec.structs.replace(batch, count=8)]),
        Subscriptions({"bob": SubscriptionRow(5, 6, True, 7, (A, 2), (Span(B, 1),))}),
    ):
        with pytest.raises(DecodeError):
            read(encode(wrong), moving, lambda: 1)


# Between servers


@pytest.mark.parametrize("form", FORMS)
def test_a_giver_writes_the_form_that_the_receiver_reads(tmp_path: Path, form: int) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    split(pair)
    assert write(pair["s2"], 0, "first", 0, b"x").outcome is Outcome.SUCCESS
    sent: list[bytes] = []
    chunk = receiving.Receiving.chunk

    def seen(self: Any, message: Any, now: float) -> Any:
        sent.append(bytes(message.body))
        return chunk(self, message, now)

    with patch.object(receiving, "READS", form), patch.object(receiving.Receiving, "chunk", seen):
        pair.merge("s2", "s1")
        pair.turns()
    assert pair.holders() == ["s1"]
    assert {one[:1] for one in sent} == {b"{" if form == 1 else b"\x92"}
    assert sorted(take(pair["s1"], "eve")) == [b"alice1", b"alice2", b"carl1", b"carl2"]
    assert [key[2] for key in pair["s1"].core.state.topics["t"].stages] == ["first"]
    pair.close()
