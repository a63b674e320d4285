"""The bodies about consumer groups round-trip; for anything else, only DecodeError is raised."""

from __future__ import annotations

import json
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import HOLDING_LINES_MAX, NUMBER_MAX, WORK_LINES_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.group_bodies import (
    DROPPED,
    HELD,
    LOST,
    OFFERED,
    Dead,
    GroupValues,
    Holding,
    Later,
    Range,
    Say,
    Tried,
    decode_values,
    encode_values,
    format_range,
    join_holdings,
    join_places,
    join_say,
    lost_part,
    parse_range,
    part_of,
    split_holdings,
    split_places,
    split_say,
)
from tests.protocol.drawn import hexes, numbers
from tests.protocol.drawn_groups import one_range, says

LOG = "0123456789abcdef"
holdings = st.lists(
    st.builds(Holding, st.sampled_from([HELD, OFFERED]), one_range, numbers, st.booleans(), st.just(""))
    | st.builds(
        Holding, st.just(LOST), one_range, numbers, st.booleans(), reason=st.sampled_from(["", "dropped", "purged"])
    ),
    max_size=5,
).map(tuple)
values = st.builds(
    GroupValues,
    mode=st.just("keyed"),
    parts=st.integers(1, 4096),
    on_lost=st.sampled_from(["wait", "redeliver"]),
    lost_ms=st.integers(1000, NUMBER_MAX),
    attempts=st.integers(1, 1000),
    suspended=st.booleans(),
    made=numbers,
)


@given(says)
def test_a_members_words_round_trip(say):
    assert split_say(join_say(say)) == say


@given(holdings, st.just(b"") | st.binary(min_size=1, max_size=60))
def test_an_answer_round_trips_with_its_records(lines, records):
    body = join_holdings(lines, records)
    assert split_holdings(body) == (lines, records)
    assert split_holdings(memoryview(body)) == (lines, records)


@given(values)
def test_the_values_of_a_group_round_trip(some):
    assert decode_values(encode_values(some)) == some


@given(st.lists(st.tuples(hexes, st.integers(1, NUMBER_MAX)), max_size=5).map(tuple))
def test_places_round_trip(places):
    assert split_places(join_places(places)) == places


READERS = [split_say, split_holdings, decode_values, split_places]


def problem(reader, body):
    """The text of the DecodeError that a reader raises; "" for none."""
    try:
        reader(body)
    except DecodeError as error:
        return str(error)
    return ""


@given(st.sampled_from(READERS), st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_decode_error(reader, body):
    assert len(problem(reader, body)) < 300


@given(says, holdings, values, st.data())
def test_mutated_bytes_raise_only_decode_error(say, lines, some, data):
    body = bytearray(data.draw(st.sampled_from([join_say(say), join_holdings(lines, b"ab"), encode_values(some)])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(len(body) - 1, 0)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "delete"])):
            case "flip" if body:
                body[place] = data.draw(st.integers(0, 255))
            case "cut":
                del body[place:]
            case "insert":
                body[place:place] = data.draw(st.sampled_from([b"\n", b" ", b":", b"-", b"9", b"\n\n", b"{"]))
            case _:
                del body[place : place + 3]
    for reader in READERS:
        assert "\n" not in problem(reader, bytes(body))


def test_the_text_of_a_members_words_is_the_documented_one():
    say = Say(
        done=(Range(LOG, 1, 51),),
        keep=(Range(LOG, 60, 61, 3),),
        tried=(Tried(LOG, 51, 1), Tried(LOG, 54, 2, "ValueError%3A%20no")),
        later=(Later(LOG, 52, 5000, 2),),
        dead=(Dead(LOG, 53, 5, "bad%20order"),),
    )
    assert join_say(say).decode().split("\n") == [
        f"done {LOG}.1-51",
        f"keep {LOG}.60-61:3",
        f"tried {LOG}.51 1",
        f"tried {LOG}.54 2 ValueError%3A%20no",
        f"later {LOG}.52 5000 2",
        f"dead {LOG}.53 5 bad%20order",
    ]


def test_the_text_of_an_answer_is_the_documented_one():
    lines = (
        Holding(HELD, Range(LOG, 1, 5), 2, True),
        Holding(OFFERED, Range(LOG, 5, 6)),
        Holding(LOST, Range(LOG, 6, 9, 3), reason=DROPPED),
    )
    text = f"held {LOG}.1-5 attempts=2 doubtful=1\noffered {LOG}.5-6\nlost {LOG}.6-9:3 dropped=1"
    assert join_holdings(lines) == text.encode()
    assert join_holdings(lines, b"\n\nrecords") == text.encode() + b"\n\n\n\nrecords"
    assert split_holdings(join_holdings(lines, b"\n\nrecords")) == (lines, b"\n\nrecords")


def test_an_unknown_mark_of_a_newer_server_is_ignored():
    assert split_holdings(f"held {LOG}.1-5 colour=blue".encode()) == ((Holding(HELD, Range(LOG, 1, 5)),), b"")


@pytest.mark.parametrize(
    "text",
    ["", "x.1-2", f"{LOG}.2-2", f"{LOG}.0-2", f"{LOG}.3-2", f"{LOG}.1", f"{LOG}.1-2:", f"{LOG}.1-2:4096",
     f"{LOG}.01-2", f"{LOG}.1-2:-1", f"{LOG} .1-2"],
)  # fmt: skip
def test_a_text_that_is_no_range_is_refused(text):
    with pytest.raises(ValueError, match="not a"):
        parse_range(text)


@given(one_range)
def test_a_range_round_trips(one):
    assert parse_range(format_range(one)) == one


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("did x", "says 'did'"),
        (f"done {LOG}.1-2 x", "2 words"),
        ("done", "0 words"),
        (f"tried {LOG}.0 1", "not a record"),
        (f"dead {LOG}.1 1 ", "not a reason"),
        (f"dead {LOG}.1 1 {'x' * 301}", "not a reason"),
        (f"later {LOG}.1 -5 1", "not a number"),
    ],
)
def test_the_reason_names_the_broken_line(line, reason):
    with pytest.raises(DecodeError) as caught:
        split_say(line.encode())
    assert reason in str(caught.value)


def test_too_many_lines_are_refused():
    line = f"done {LOG}.1-2"
    assert len(split_say("\n".join([line] * WORK_LINES_MAX).encode()).done) == WORK_LINES_MAX
    with pytest.raises(DecodeError, match="lines"):
        split_say("\n".join([line] * (WORK_LINES_MAX + 1)).encode())
    with pytest.raises(DecodeError, match="lines"):
        split_holdings("\n".join([f"held {LOG}.1-2"] * (HOLDING_LINES_MAX + 1)).encode())


def test_amounts_beyond_the_limits_count_as_the_limits():
    say = split_say(f"tried {LOG}.1 5000\nlater {LOG}.1 99999999999999 1".encode())
    assert say.tried[0].attempts == 1000
    assert say.later[0].delay_ms == 90 * 86_400_000


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "both"},
        {"parts": 0},
        {"parts": True},
        {"mode": "shared"},
        {"on_lost": "drop"},
        {"lost_ms": 0},
        {"attempts": 0},
        {"suspended": 1},
        {"made": -1},
        {"made": None},
    ],
)
def test_values_out_of_range_are_refused(change):
    facts = {
        "mode": "keyed",
        "parts": 4,
        "on_lost": "wait",
        "lost_ms": 1000,
        "attempts": 5,
        "suspended": False,
        "made": 1,
    }
    assert decode_values(json.dumps(facts | {"colour": 1}).encode()).parts == 4
    with pytest.raises(DecodeError):
        decode_values(json.dumps(facts | change).encode())


def test_the_part_of_a_record_is_that_of_its_key_or_of_its_publisher():
    assert part_of(b"k7", "a/0", 1000) == part_of(memoryview(b"k7"), "b/0", 1000) == crc32(b"k7") % 1000
    assert part_of(b"", "a/0", 1000) == crc32(b"a/0") % 1000
    assert lost_part(LOG, 1000) == crc32(LOG.encode()) % 1000
