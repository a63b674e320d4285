"""A codec is derived from a dataclass's annotations; kinds of fields accept only their own values."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, get_args

import pytest

from pubsub.errors import DecodeError
from pubsub.protocol.codec import decode, encode
from pubsub.protocol.fields import Contents, Number, Place, Word, matching, one_of, within
from pubsub.protocol.messages import Message, Outcome, Subscribe
from pubsub.protocol.register import Prepare, Vote, VoteOutcome
from pubsub.protocol.transfers import Owners
from pubsub.protocol.wire import BY_CLASS, BY_NAME, Codec

HEX = "0123456789abcdef"
Sample: Any = make_dataclass(
    "Sample",
    [
        ("sender", Word),
        ("body", Contents),
        ("place", Place, None),
        ("count", Annotated[Number, "n"], 1),
        ("reason", Annotated[Word, "!why"], ""),
    ],
)
CODEC = Codec("SAMPLE", Sample, positional=2)


@pytest.mark.parametrize(
    ("message", "head"),
    [
        (Sample("a", b"x"), b"SAMPLE a !v=1\r\n\r\n"),
        (Sample("a", b"x", (HEX, 7)), b"SAMPLE a 0123456789abcdef.7 !v=1\r\n\r\n"),
        (Sample("a", b"x", count=2), b"SAMPLE a n=2 !v=1\r\n\r\n"),
        (Sample("a", b"x", None, 0, "because"), b"SAMPLE a n=0 !why=because !v=1\r\n\r\n"),
    ],
)
def test_a_message_is_written_and_read_by_its_annotations(message: Any, head: bytes) -> None:
    assert CODEC.encode(message) == (head, b"x")
    assert CODEC.decode(head[:-4].decode().split(" "), b"x") == message


def test_a_body_is_not_copied() -> None:
    body = memoryview(b"x")
    assert CODEC.encode(Sample("a", body))[1] is body
    assert CODEC.decode(["SAMPLE", "a", "!v=1"], body).body is body


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("SAMPLE", "without sender"),
        ("SAMPLE a b !v=1", "not a position"),
        ("SAMPLE a n !v=1", "not a position"),
        ("SAMPLE a -1 n !v=1", "has no value: 'n'"),
        ("SAMPLE a n=1 n=1 !v=1", "with n twice"),
        ("SAMPLE a count=1 !n=1 !v=1", "insists on '!n=1'"),
        ("SAMPLE a n=1", "without !v=1"),
    ],
)
def test_other_words_are_refused(words: str, reason: str) -> None:
    with pytest.raises((DecodeError, ValueError), match=reason):
        CODEC.decode(words.split(" "), b"")


def test_a_field_that_is_not_declared_is_ignored() -> None:
    assert CODEC.decode(["SAMPLE", "a", "count=7", "body=7", "place=7", "!v=1"], b"") == Sample("a", b"")


def test_every_message_has_its_own_name() -> None:
    assert set(BY_CLASS) == set(get_args(Message))
    assert {codec.name: codec for codec in BY_CLASS.values()} == {n: c for n, c in BY_NAME.items() if n == c.name}
    assert {n: c.name for n, c in BY_NAME.items() if n != c.name} == {"OWNERS": "WHOLE"}


def test_the_next_release_names_are_read_and_the_present_ones_are_sent() -> None:
    for codec in BY_CLASS.values():
        for field in codec.header:
            for name in field.also:
                assert codec._parsers[name] == codec._parsers[field.prefix[:-1]]
    present, _ = encode(Subscribe("a", "t", 1, 2))
    assert b" opening=2 " in present
    assert decode(present.replace(b"opening=", b"epoch=")) == decode(present)
    asked, table = encode(Owners("s1", {"t": ""}))
    assert asked.startswith(b"WHOLE ")
    assert decode(asked.replace(b"WHOLE ", b"OWNERS "), table) == Owners("s1", {"t": ""})
    for kind, old in (("takeover", b"take"), ("resume", b"resume"), ("handover", b"hand"), ("bootstrap", b"found")):
        ballot = Prepare("s1", "5" * 16, "a" * 16, 7, 3, kind)
        sent, _ = encode(ballot)
        assert b" kind=" + old + b" " in sent
        assert decode(sent) == decode(sent.replace(b"kind=" + old, b"kind=" + kind.encode())) == ballot
    for outcome, old in ((VoteOutcome.PRIMARY_ALIVE, b" heard "), (VoteOutcome.REPORTED, b" told ")):
        vote = Vote("p1", "5" * 16, outcome, 3, "a" * 16)
        sent, _ = encode(vote)
        assert old in sent
        assert decode(sent) == decode(sent.replace(old, f" {outcome.value} ".encode())) == vote
    both = present.replace(b"opening=2", b"opening=2 epoch=2")
    with pytest.raises(DecodeError, match="twice"):
        decode(both)


def test_a_text_that_does_not_match_is_named() -> None:
    kind = matching("a vowel", "aeiou".__contains__)
    assert kind.parse("e") == "e"
    with pytest.raises(ValueError, match="not a vowel: 'x'"):
        kind.parse("x")


def test_each_of_a_few_values_round_trips() -> None:
    kind = one_of("a status", Outcome)
    assert kind.parse("empty") is Outcome.EMPTY
    assert kind.values[:2] == ("success", "duplicate")
    with pytest.raises(ValueError, match="not a status: 'EMPTY'"):
        kind.parse("EMPTY")


def test_a_renamed_value_is_written_by_its_old_text_and_read_by_both() -> None:
    kind = one_of("a color", ("red", "green"), {"green": "verdant"})
    assert (kind.format("red"), kind.format("green")) == ("red", "verdant")
    assert [kind.parse(text) for text in ("red", "verdant", "green")] == ["red", "green", "green"]
    assert (kind.values, kind.also) == (("red", "verdant"), (("verdant", "green"),))
    with pytest.raises(ValueError, match="not a color: 'blue'"):
        kind.parse("blue")


def test_each_renamed_value_of_a_message_has_its_pair_of_texts() -> None:
    kinds = {field.kind for codec in BY_CLASS.values() for field in codec.header if field.kind.also}
    assert {kind.title: kind.also for kind in kinds} == {
        "a kind of attempt": (
            ("take", "takeover"),
            ("hand", "handover"),
            ("drop", "remove_from_sync"),
            ("add", "add_to_sync"),
            ("found", "bootstrap"),
        ),
        "a vote": (("heard", "primary-alive"), ("told", "reported")),
    }


def test_a_number_is_within_its_bounds() -> None:
    kind = within(1, 64)
    assert (kind.parse("1"), kind.parse("64")) == (1, 64)
    for text in ("0", "65", "01", "-1", ""):
        with pytest.raises(ValueError, match="not a number from"):
            kind.parse(text)
