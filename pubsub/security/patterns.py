"""Patterns of topics, names and IDs: `*` is any run of characters, also none; everything else is itself.

In a list of patterns a literal `*`, `,`, `%` or `#` is written as `%` and two hex digits. A pattern is matched in time
that grows with the text alone, however many stars it has, so that no rule can make a proxy slow.
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
        parts: the literal texts between the stars; one part: no star.
    """

    parts: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Whether the whole text is one that the pattern describes."""
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
    """The pattern that is written as `text`.

    Args:
        text: what stands between two commas.
        literal: of what the characters besides the stars must be, as a regular expression for any number of them.
        length_max: characters of the longest text that could be meant.
        what: what the pattern is for, for the error's text: "topic", "name".

    Raises:
        ValueError: it is none, or could never match; the text says why.
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
