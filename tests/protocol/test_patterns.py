"""Patterns of topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import InvalidName
from pubsub.protocol.patterns import check_new_pattern, check_pattern, is_pattern, matches, overlap

TOKENS = st.lists(st.sampled_from(["a", "b", "", "a*", "$x"]), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.1", False),
        ("*.eu", "orders.eu", True),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("orders.>", "orders", False),
        ("orders.>", "orders.eu", True),
        ("orders.>", "orders.eu.1", True),
        (">", "orders", True),
        (">", "orders.eu", True),
        ("*.>", "orders", False),
        ("*.>", "orders.eu.1", True),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("a>", "ab", False),
        (">", "$dead.billing", False),
        ("*.*", "$dead.billing", False),
        ("$dead.*", "$dead.billing", True),
        ("$dead.>", "$dead.billing", True),
        ("$other.>", "$dead.billing", False),
        ("a.$b", "a.$b", True),
        ("a.*", "a.$b", True),
    ],
)
def test_a_pattern_matches_by_tokens(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", False), ("orders.*", True), ("orders.>", True), ("a*", False), ("a.>b", False), (">", True)],
)
def test_only_whole_tokens_make_a_pattern(text: str, expected: bool) -> None:
    assert is_pattern(text) is expected


@given(TOKENS, st.data())
def test_a_topic_with_tokens_replaced_by_stars_matches_it(tokens: list[str], data: st.DataObject) -> None:
    topic = ".".join(tokens)
    stars = [index > 0 and data.draw(st.booleans()) for index in range(len(tokens))]
    pattern = ["*" if star else token for star, token in zip(stars, tokens, strict=True)]
    assert matches(".".join(pattern), topic)
    place = data.draw(st.integers(0 if topic[:1] != "$" else 1, len(tokens)))
    assert matches(".".join([*pattern[:place], ">"]), topic) is (place < len(tokens))


@given(TOKENS, TOKENS)
def test_a_name_matches_itself_alone(one: list[str], other: list[str]) -> None:
    assert matches(".".join(one), ".".join(other)) is (one == other)


@pytest.mark.parametrize("text", ["", "a b", "a\n", "x" * 81, "a.>.b", ">.a"])
def test_a_wrong_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        check_pattern(text)


@pytest.mark.parametrize("text", [">", "*", "a.*.b", "a.>", "$dead.>", "orders"])
def test_a_pattern_is_returned_as_it_is(text: str) -> None:
    assert check_pattern(text) == text


@given(TOKENS, TOKENS, st.data())
def test_patterns_of_one_topic_overlap(tokens: list[str], others: list[str], data: st.DataObject) -> None:
    def pattern(tokens: list[str]) -> str:
        kept = data.draw(st.integers(1, len(tokens)))
        cut = data.draw(st.booleans()) and kept < len(tokens)
        stars = [data.draw(st.booleans()) for _ in tokens]
        words = ["*" if star and token[:1] != "$" else token for star, token in zip(stars, tokens, strict=True)]
        return ".".join([*words[:kept], ">"] if cut else words)

    topic = ".".join(tokens)
    first, second, other = pattern(tokens), pattern(tokens), pattern(others)
    assert matches(first, topic)
    assert overlap(first, second)
    assert overlap(first, topic)
    assert overlap(first, other) == overlap(other, first)
    assert overlap(first, other) or not (matches(other, topic))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a.*", "a"), ("a.*", "b.*"), ("a.>", "a"), ("*.b", "a.c"), (">", "$dead.x"), ("a.*.c", "*.b.d"), ("a", "b")],
)
def test_patterns_without_a_common_topic_do_not_overlap(one: str, other: str) -> None:
    assert not overlap(one, other)
    assert not overlap(other, one)


@pytest.mark.parametrize("text", ["$dead.*", "_a.>", "a b.*"])
def test_a_pattern_of_the_services_topics_cannot_be_subscribed_to(text: str) -> None:
    with pytest.raises(InvalidName):
        check_new_pattern(text)
