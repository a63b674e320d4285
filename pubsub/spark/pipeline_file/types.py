"""The types of JSON fields, in Spark's own words: `long`, `decimal(10,2)`, `array<string>`, `struct<a: long>`."""

from __future__ import annotations

import re
from typing import Final

from pubsub.errors import CallerError

SIMPLE: Final = (
    "string", "boolean", "byte", "short", "int", "long", "float", "double", "date", "timestamp", "binary",
)  # fmt: skip
DEPTH_MAX: Final = 20
"""Types within types."""

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_TOKEN: Final = re.compile(r"\s*([A-Za-z_]\w*|\d+|[<>(),:])")
DECIMAL_DIGITS_MAX: Final = 38


def check_name(name: str) -> str:
    """Return a name for a field or column.

    Raises:
        CallerError: it is not letters, digits and _.
    """
    if not _WORD.fullmatch(name) or not name.isascii():
        raise CallerError(f"{name} is not a name of letters, digits and _; JSON's other names cannot be columns here")
    return name


def check_type(text: str) -> str:
    """Return a type of a field.

    Raises:
        CallerError: it is no type that JSON can have here.
    """
    tokens, place = [], 0
    while place < len(text.rstrip()):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _unknown(text)
        tokens.append(found[1])
        place = found.end()
    reader = _Reader(text, tokens)
    reader.type(0)
    if reader.tokens:
        raise _unknown(text)
    return text


def _unknown(text: str) -> CallerError:
    return CallerError(
        f"{text} is not a type; give {', '.join(SIMPLE)}, decimal(P,S), array<T>, map<string,T> or struct<name: T, …>"
    )


class _Reader:
    def __init__(self, text: str, tokens: list[str]) -> None:
        self._text, self.tokens = text, tokens

    def _take(self, *expected: str) -> str:
        if not self.tokens or (expected and self.tokens[0] not in expected):
            raise _unknown(self._text)
        return self.tokens.pop(0)

    def type(self, depth: int) -> None:
        word = self._take().lower()
        if depth > DEPTH_MAX:
            raise CallerError(f"types within types, {DEPTH_MAX} at most")
        if word in SIMPLE:
            return
        if word == "decimal":
            self._decimal()
        elif word == "array":
            self._take("<")
            self.type(depth + 1)
            self._take(">")
        elif word == "map":
            for expected in ("<", "string", ","):
                self._take(expected)
            self.type(depth + 1)
            self._take(">")
        elif word == "struct":
            self._take("<")
            self._fields(depth)
        else:
            raise _unknown(self._text)

    def _decimal(self) -> None:
        self._take("(")
        precision, _, scale, _ = self._take(), self._take(","), self._take(), self._take(")")
        if not (precision.isdigit() and scale.isdigit() and int(scale) <= int(precision) <= DECIMAL_DIGITS_MAX):
            raise CallerError(f"{self._text}: a decimal has up to {DECIMAL_DIGITS_MAX} digits, as decimal(10,2)")
        if int(precision) == 0:
            raise CallerError(f"{self._text}: a decimal has a digit at least")

    def _fields(self, depth: int) -> None:
        end = ","
        while end == ",":
            check_name(self._take())
            self._take(":")
            self.type(depth + 1)
            end = self._take(",", ">")
