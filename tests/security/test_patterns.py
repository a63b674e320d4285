"""Patterns: a star is any run of characters, and any other character is itself."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.security.patterns import Pattern, parse_pattern

TOPIC = re.compile(r"[!-~]*")
NAME = re.compile(r"[A-Za-z0-9._-]*")


def topics(text: str) -> Pattern:
    return parse_pattern(text, TOPIC, 80, "topic")


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders/*", "orders/", True),
        ("orders/*", "orders/eu/1", True),
        ("orders/*", "orders", False),
        ("*", "", True),
        ("*", "anything", True),
        ("*-eu", "orders-eu", True),
        ("*-eu", "orders-eu2", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*ab*ab*", "aab", False),
        ("*ab*ab*", "xabyab", True),
        ("a**b", "ab", True),
        ("a*b*b", "ab", False),
        ("a*bc*cd", "abcd", False),
        ("a*bc*cd", "abccd", True),
        ("%2A", "*", True),
        ("%2A", "x", False),
        ("a%2Cb", "a,b", True),
        ("a.c", "abc", False),
        ("[a]", "a", False),
        ("A", "a", False),
    ],
)
def test_a_pattern_matches_exactly_its_names(pattern: str, text: str, matches: bool) -> None:
    assert topics(pattern).matches(text) is matches


parts = st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=6), min_size=1, max_size=5)


@given(parts, st.text("ab*", max_size=12))
def test_a_pattern_matches_like_a_regular_expression(literals: list[str], text: str) -> None:
    pattern = Pattern(tuple(literals))
    slow = re.fullmatch(".*".join(map(re.escape, literals)), text, re.DOTALL)
    assert pattern.matches(text) is (slow is not None)


@settings(max_examples=10 * settings().max_examples)
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=6))
def test_a_pattern_of_few_letters_matches_like_a_regular_expression(written: str, text: str) -> None:
    slow = re.fullmatch(written.replace("*", ".*"), text)
    assert topics(written).matches(text) is (slow is not None)


@given(parts.filter(any))
def test_a_written_pattern_is_read_back(literals: list[str]) -> None:
    middle = [part for part in literals[1:-1] if part]
    pattern = Pattern((literals[0], *middle, literals[-1]) if len(literals) > 1 else (literals[0],))
    assert topics(str(pattern)) == pattern
    assert "," not in str(pattern)
    assert "#" not in str(pattern)


@given(st.text())
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        pattern = topics(text)
    except ValueError:
        return
    assert topics(str(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a b", "no space"),
        ("a,b", "%2C"),
        ("a#b", "%23"),
        ("a%", "%25"),
        ("a%2", "%25"),
        ("a%zz", "%25"),
        ("a%0A", "no topic has"),
        ("a%00", "no topic has"),
        ("ä", "no space"),
        ("x" * 81, "more than 80"),
    ],
)
def test_an_invalid_pattern_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        topics(text)


def test_a_pattern_of_names_has_only_characters_of_names() -> None:
    assert parse_pattern("roll-*", NAME, 64, "name").matches("roll-1")
    for text in ("a/b", "a%2Fb", "a:b", "%2A"):
        with pytest.raises(ValueError, match="character that no name has"):
            parse_pattern(text, NAME, 64, "name")


def test_many_stars_cost_time_linear_in_the_text() -> None:
    pattern = topics("*a" * 39 + "*b")
    started = time.process_time()
    for _ in range(1000):
        assert not pattern.matches("a" * 80)
    assert time.process_time() - started < 1.0
