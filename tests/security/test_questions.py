"""The proxy's reading of a message's question is the server's reading of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.protocol import decode, encode, request_route
from pubsub.protocol import messages as m
from pubsub.protocol.deletions import Delete, Deleted
from pubsub.protocol.families import Matching, Pattern, Patterns
from pubsub.protocol.register import View, VoteOutcome
from pubsub.protocol.standby import ROOT
from pubsub.protocol.topic_objects import Purge
from pubsub.security.access import Operation
from pubsub.security.questions import Question, question, question_of

HEX = "0123456789abcdef"
VIEW = View(1, HEX, "tcp://h:1", (HEX,), (HEX,))

MESSAGES: list[tuple[m.Message, Question]] = [
    (m.Put("alice", "orders", 1, HEX, 1, 0, 0), Question(Operation.PUT, "alice", "orders")),
    (m.Stage("alice", "orders", 1, HEX, "a", 0, 1, 0), Question(Operation.PUT, "alice", "orders")),
    (m.Publish("alice", "orders", 1, HEX, {"a": 1}), Question(Operation.PUT, "alice", "orders")),
    (m.Subscribe("alice", "orders", 1, 1), Question(Operation.GET, "alice", "orders")),
    (m.Subscribe("alice", "orders", 1, 1, name="nightly"), Question(Operation.GET, "alice", "orders", "nightly")),
    (m.Unsubscribe("alice", "orders", 1, 1), Question(Operation.GET, "alice", "orders")),
    (m.Unsubscribe("alice", "orders", 1, 1, name="nightly"), Question(Operation.GET, "alice", "orders", "nightly")),
    (m.Get("alice", "orders", None, 1, 1), Question(Operation.GET, "alice", "orders")),
    (m.Get("alice", "orders", (HEX, 7), 1, 1, name="n"), Question(Operation.GET, "alice", "orders", "n")),
    (m.Read("alice", "orders", None), Question(Operation.GET, "alice", "orders")),
    (m.Read("alice", "orders", None, name="n"), Question(Operation.GET, "alice", "orders", "n")),
    (m.Work("alice", "orders", "g", 1, 2, HEX, 1), Question(Operation.GET, "alice", "orders", "g")),
    (m.Subscribe("alice", "orders", 1, 1, name="g", group="any"), Question(Operation.GET, "alice", "orders", "g")),
    (m.Describe("alice", "orders", name="g"), Question(Operation.SETTINGS, "alice", "orders")),
    (m.Group("ops", "orders", "end", "g", 1), Question(Operation.OPERATE, "ops")),
    (m.Settings("alice", "orders"), Question(Operation.SETTINGS, "alice", "orders")),
    (m.Configure("ops", "orders", HEX, values=b"{}"), Question(Operation.OPERATE, "ops")),
    (Purge("ops", "orders", 1, places=b"{}"), Question(Operation.OPERATE, "ops")),
    (m.Report("pubsub-status", "-"), Question(Operation.STATUS, "pubsub-status")),
    (m.Report("pubsub-status", "s1", "orders"), Question(Operation.STATUS, "pubsub-status")),
    (m.Operate("ops", "-", "forget", server="s1"), Question(Operation.OPERATE, "ops")),
    (m.Operate("ops", "s1", "unsubscribe", topic="orders"), Question(Operation.OPERATE, "ops")),
    (Pattern("alice", "orders.>", 1), Question(Operation.PATTERN, "alice")),
    (Matching("alice", "orders.>"), Question(Operation.PATTERN, "alice")),
    (Delete("ops", "orders"), Question(Operation.OPERATE, "ops")),
    (Deleted("s1", HEX), Question(Operation.OTHER, "s1")),
    (Patterns("s1", HEX), Question(Operation.OTHER, "s1")),
    (m.Periodic("s1", HEX, 1, 1, "tcp://h:1", "", 1), Question(Operation.OTHER, "s1")),
    (m.Heartbeat("s1"), Question(Operation.OTHER, "s1")),
    (m.Owners("s1", {"orders": ""}), Question(Operation.OTHER, "s1")),
    (m.Merge("p1", "orders", "tcp://h:1"), Question(Operation.OTHER, "p1")),
    (m.Transfer("s1", "orders"), Question(Operation.OTHER, "s1")),
    (m.Status("s1", m.Outcome.SUCCESS), Question(Operation.OTHER, "s1")),
    (m.Prepare("s1", HEX, HEX, 1, 1, "takeover"), Question(Operation.OTHER, "s1")),
    (m.Accept("s1", HEX, HEX, 1, 1, VIEW), Question(Operation.OTHER, "s1")),
    (m.Look("s1", HEX, 1), Question(Operation.OTHER, "s1")),
    (m.Admit("s1", HEX, 1, HEX, 1, 1, VIEW), Question(Operation.OTHER, "s1")),
    (m.Vote("p1", HEX, VoteOutcome.REPORTED, 1, HEX), Question(Operation.OTHER, "p1")),
    (m.Forget("s1", HEX, HEX, HEX), Question(Operation.OTHER, "s1")),
    (m.Entries("s1", HEX, HEX, 1, 1, ROOT, ROOT), Question(Operation.OTHER, "s1")),
    (m.Follow("s1", HEX, HEX, 1, 1), Question(Operation.OTHER, "s1")),
    (m.Ack("s1", HEX, HEX, 1, 1, ROOT), Question(Operation.OTHER, "s1")),
    (m.Copy("s1", HEX, HEX, "gone", 1), Question(Operation.OTHER, "s1")),
    (m.Repair("s1", HEX, HEX, 1, "wanted", 1, 1), Question(Operation.OTHER, "s1")),
]


@pytest.mark.parametrize(("message", "asked"), MESSAGES, ids=lambda each: type(each).__name__)
def test_each_message_asks_for_its_operation(message: m.Message, asked: Question) -> None:
    header, body = encode(message)
    assert question(header) == asked
    assert question(header + bytes(body)) == asked
    assert question(memoryview(header)) == asked
    assert question_of(message) == asked


def test_every_message_of_the_protocol_has_a_question() -> None:
    assert {type(message) for message, _ in MESSAGES} == set(m.Message.__args__)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"PUT",
        b"PUT alice orders 1 !v=1",
        b"PUT alice orders\r\n\r\n",
        b"PUT alice x\r\n\r\n.y 1 !v=1\r\n\r\n",
        b"PUT alice \xff 1 !v=1\r\n\r\n",
        b"PUT \xff orders 1 !v=1\r\n\r\n",
        b"GET alice orders -1 name=\xff !v=1\r\n\r\n",
        b"GET alice orders -1 name= !v=1\r\n\r\n",
        b"GET alice orders -1 name=mine name=other !v=1\r\n\r\n",
        b"PUT alice orders " + b"x" * 20_000 + b" !v=1\r\n\r\n",
    ],
)
def test_an_unreadable_message_asks_for_nothing_and_cannot_be_decoded(contents: bytes) -> None:
    assert question(contents) is None
    with pytest.raises(DecodeError):
        decode(contents)


def test_a_field_that_only_resembles_a_name_is_no_name() -> None:
    asked = question(b"GET alice orders -1 number=1 opening=1 !v=1 rename=x surname=y\r\n\r\nname=z")
    assert asked == Question(Operation.GET, "alice", "orders")
    asked = question(b"PUT alice orders 1 name=x !v=1\r\n\r\n")
    assert asked == Question(Operation.PUT, "alice", "orders")


words = st.one_of(
    st.sampled_from(
        [b"alice", b"bob", b"orders", b"x\r\n\r\n.y", b"", b"-", b"-1", b"0", b"1", b"\r\n\r\n", b"\r", b"\n", b"\xff"]
    ),
    st.sampled_from(
        [b"name=a", b"name=b", b"name=", b"!v=1", b"!v=2", b"number=1", b"opening=1", b"after=-1", b"x=name=c"]
    ),
    st.sampled_from(
        [b"publisher=0123456789abcdef", b"count=1", b"previous=0", b"crc=0", b"attempt=a", b"first=0", b"max=1"]
    ),
    st.binary(max_size=6),
)
heads = st.sampled_from(
    [b"PUT", b"STAGE", b"PUBLISH", b"SUBSCRIBE", b"UNSUBSCRIBE", b"GET", b"READ", b"REPORT", b"OPERATE", b"STATUS"]
)
hostile = st.tuples(heads, st.lists(words, max_size=14)).map(
    lambda drawn: b" ".join([drawn[0], *drawn[1]]) + b"\r\n\r\n"
)
likely = st.tuples(
    heads,
    st.sampled_from([b"alice", b"bob"]),
    st.sampled_from([b"orders", b"-", b"s1"]),
    st.sampled_from([b"-1", b"1", b"forget", b"number=1"]),
    st.lists(words, max_size=8),
).map(lambda drawn: b" ".join([*drawn[:4], *drawn[4], b"!v=1"]) + b"\r\n\r\n")


@settings(max_examples=5 * settings().max_examples)
@given(st.one_of(hostile, likely, st.binary(max_size=200)))
def test_the_question_of_decodable_contents_is_that_of_the_decoded_message(contents: bytes) -> None:
    asked = question(contents)
    try:
        message = decode(contents)
    except DecodeError:
        return
    assert asked == question_of(message)


@settings(max_examples=5 * settings().max_examples)
@given(st.sampled_from(MESSAGES), st.lists(words.filter(lambda word: b" " not in word), max_size=4), st.integers(0, 12))
def test_the_question_of_a_message_with_foreign_words_is_that_of_the_decoded_one(
    drawn: object, foreign: list[bytes], place: int
) -> None:
    message, _ = drawn  # type: ignore[misc]
    header, body = encode(message)
    parts = header[:-4].split(b" ")
    contents = b" ".join([*parts[:place], *foreign, *parts[place:]]) + b"\r\n\r\n" + bytes(body)
    asked = question(contents)
    try:
        decoded = decode(contents)
    except DecodeError:
        return
    assert asked == question_of(decoded)


@settings(max_examples=5 * settings().max_examples)
@given(st.one_of(hostile, likely))
def test_a_message_is_routed_by_the_topic_of_its_decision(contents: bytes) -> None:
    asked, route = question(contents), request_route(contents)
    if asked is not None and asked.topic and route is not None:
        assert (asked.sender, asked.topic) == route[1:]
