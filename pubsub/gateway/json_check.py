"""Checks whether bytes are JSON, without recursion and without blocking other threads.

`json.loads` is recursive, so 1 KB of `[` raises RecursionError. It also holds the interpreter's lock for the whole
document, even on a thread: for seconds if the document is large and has many small parts. A publisher chooses these
bytes. Therefore a document above PARSED_BYTES_MAX is checked in pieces. A regular expression matches some parts at a
time, a stack of bytes holds the open brackets, and other threads run in between.

The rule is docs/explanation/gateway.md, H15.
"""

from __future__ import annotations

import json
import re
from typing import Final

from pubsub.gateway.limits import PARSED_BYTES_MAX

PARTS_AT_ONCE: Final = 64
"""Parts of an array or an object that one regular expression matches."""

STEPS_MAX: Final = 1_000_000
"""Steps, each of up to PARTS_AT_ONCE parts, after which a document counts as not JSON: some seconds of one thread."""

_SPACE: Final = r"[ \t\n\r]*+"
_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_SCALAR: Final = rf"(?>{_STRING}|-?Infinity|NaN|{_NUMBER}|true|false|null)"
"""NaN and Infinity are not JSON by RFC 8259, but Python's module accepts them."""

_MEMBER: Final = rf"{_STRING}{_SPACE}:{_SPACE}"


def _some(part: str) -> str:
    """Return a pattern of zero or more parts with commas between them."""
    return rf"(?:{part}{_SPACE}(?:,{_SPACE}{part}{_SPACE}){{0,{PARTS_AT_ONCE - 1}}}+)?+"


_FLAT: Final = rf"(?>{_SCALAR}|\[{_SPACE}{_some(_SCALAR)}\]|\{{{_SPACE}{_some(_MEMBER + _SCALAR)}\}})"
"""A value without nested brackets."""

_BLANK: Final = re.compile(_SPACE)
_VALUE: Final = re.compile(_FLAT + _SPACE)
_KEY: Final = re.compile(_MEMBER)
_RUNS: Final = {
    ord("["): re.compile(rf"(?:{_FLAT}{_SPACE},{_SPACE}){{0,{PARTS_AT_ONCE}}}+"),
    ord("{"): re.compile(rf"(?:{_MEMBER}{_FLAT}{_SPACE},{_SPACE}){{0,{PARTS_AT_ONCE}}}+"),
}
_CLOSING: Final = {ord("["): "]", ord("{"): "}"}


def is_json(body: bytes) -> bool:
    """Return whether bytes are JSON of any depth, with numbers of any length.

    A document of more than STEPS_MAX steps counts as not JSON. Any thread may call it.
    """
    if len(body) <= PARSED_BYTES_MAX:
        try:
            json.loads(body, parse_int=str)
        except RecursionError:
            pass
        except ValueError:
            return False
        else:
            return True
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
    except UnicodeDecodeError:
        return False
    return scan(text)


def scan(text: str, steps_max: int = STEPS_MAX) -> bool:
    """Return whether a text is JSON.

    Args:
        text: the document.
        steps_max: after this many steps it counts as not JSON.
    """
    place, opened = _BLANK.match(text).end(), bytearray()  # type: ignore[union-attr]
    for _ in range(steps_max):
        if opened:
            place = _RUNS[opened[-1]].match(text, place).end()  # type: ignore[union-attr]
            if opened[-1] == ord("{"):
                key = _KEY.match(text, place)
                if key is None:
                    return False
                place = key.end()
        value = _VALUE.match(text, place)
        if value is None:
            bracket = text[place : place + 1]
            if not bracket or bracket not in "[{":
                return False
            opened.append(ord(bracket))
            place = _BLANK.match(text, place + 1).end()  # type: ignore[union-attr]
            continue
        place = _closed(text, value.end(), opened)
        if not opened:
            return place == len(text)
        if text[place : place + 1] != ",":
            return False
        place = _BLANK.match(text, place + 1).end()  # type: ignore[union-attr]
    return False


def _closed(text: str, place: int, opened: bytearray) -> int:
    """Return the position after the brackets that close here."""
    while opened and text[place : place + 1] == _CLOSING[opened[-1]]:
        opened.pop()
        place = _BLANK.match(text, place + 1).end()  # type: ignore[union-attr]
    return place
