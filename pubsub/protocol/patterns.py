"""Patterns of topics: tokens between dots, of which some stand for others.

    *    as a whole token: any one token
    >    as the last token: one or more tokens
    all other tokens, `a*` among them: themselves

A topic that begins with `$` belongs to the service. Only a pattern that begins with `$` itself matches it.
"""

from __future__ import annotations

from typing import Final

from pubsub.errors import InvalidName
from pubsub.protocol.names import check_topic

ONE: Final = "*"
REST: Final = ">"


def is_pattern(text: str) -> bool:
    """Return whether the text stands for several topics. Every other text is the name of one topic."""
    tokens = text.split(".")
    return ONE in tokens or tokens[-1] == REST


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern, or the name of one topic, matches a topic."""
    if pattern == topic:
        return True
    if topic[:1] == "$" and pattern[:1] != "$":
        return False
    wanted, tokens = pattern.split("."), topic.split(".")
    if wanted[-1] == REST:
        del wanted[-1]
        if len(tokens) <= len(wanted):
            return False
        del tokens[len(wanted) :]
    return len(wanted) == len(tokens) and all(one in (ONE, token) for one, token in zip(wanted, tokens, strict=True))


def overlap(one: str, other: str) -> bool:
    """Return whether a topic may match both of two patterns or names of topics."""
    if (one[:1] == "$") != (other[:1] == "$"):
        return False
    these, those = one.split("."), other.split(".")
    for left, right in zip(these, those, strict=False):
        if REST in (left, right):  # Each has at least one token from here on, and > stands for all of the other's.
            return True
        if left != right and ONE not in (left, right):
            return False
    return len(these) == len(those)


def check_pattern(text: str) -> str:
    """Return a pattern, or the name of one topic.

    Raises:
        InvalidName: it has a character that no topic has, it is too long, or a `>` is not its last token.
    """
    if REST in check_topic(text).split(".")[:-1]:
        raise InvalidName("pattern", text, "> stands for the rest of a topic, so it is the last token")
    return text


def check_new_pattern(text: str) -> str:
    """Return a pattern that may be subscribed to.

    Raises:
        InvalidName: as `check_pattern`, or it is one of topics that belong to the service.
    """
    if check_pattern(text)[:1] in {"$", "_"}:
        raise InvalidName("pattern", text, "a leading _ or $ is reserved for topics of the service")
    return text
