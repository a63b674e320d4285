"""Patterns of topics, names and IDs: `*` matches any characters or none; every other character matches itself.

In a list of patterns a literal `*`, `,`, `%` or `#` is written as `%` and two hex digits. The time of a match grows
only with the text, for any number of stars, so that no rule can slow down a proxy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WRITTEN: Final = re.compile(r"(?:[!-$&-+\--~]|%[0-9A-Fa-f]{2})+")
_ENCODED: Final = re.compile(r"%(..)")
_RESERVED: Final = re.compile(r"[%*,#]")


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """One pattern.

    Attributes:
        parts: the literal texts between the stars; a single part has no star.
    """

    parts: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        first, last = self.parts[0], self.parts[-1]
        if len(self.parts) == 1:
            return text == first
        place, end = len(first), len(text) - len(last)
        if place > end or not (text.startswith(first) and text.endswith(last)):
            return False
        for part in self.parts[1:-1]:
            found = text.find(part, place, end)
            if found < 0:
                return False
            place = found + len(part)
        return True

    def __str__(self) -> str:
        return "*".join(_RESERVED.sub(lambda found: f"%{ord(found[0]):02X}", part) for part in self.parts)


EVERYTHING: Final = Pattern(("", ""))


def parse_pattern(text: str, literal: re.Pattern[str], length_max: int, what: str) -> Pattern:
    """Parse a pattern.

    Args:
        text: the text between two commas.
        literal: a regular expression for any number of allowed characters without stars.
        length_max: characters of the longest text to match.
        what: the kind of thing to match, for the error's text: "topic", "name".

    Raises:
        ValueError: it is invalid, or can never match; the text has the reason.
    """
    if not text:
        raise ValueError(f"a pattern of a {what} is empty")
    if "#" in text or _WRITTEN.fullmatch(text) is None:
        raise ValueError(f"in a pattern of a {what} write * , % and # as %2A %2C %25 %23, and no space")
    parts = text.split("*")
    if "%" in text:
        parts = [_ENCODED.sub(lambda found: chr(int(found[1], 16)), part) for part in parts]
    meant = "".join(parts)
    if len(meant) > length_max:
        raise ValueError(f"a pattern of a {what} has more than {length_max} characters")
    if literal.fullmatch(meant) is None:
        raise ValueError(f"a pattern of a {what} has a character that no {what} has")
    if len(parts) < 3:
        return Pattern(tuple(parts))
    middle = [part for part in parts[1:-1] if part]
    return Pattern((parts[0], *middle, parts[-1]))
