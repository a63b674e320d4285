"""Reads the tables of a file key by key, and collects what is wrong with it: each problem is one line with its key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pubsub.errors import PubsubError

LISTED_MAX: Final = 20
"""Known keys that a problem lists."""

Check = Callable[[str], object]


class Problems(list[str]):
    """What is wrong with a file: `key: reason`."""

    def add(self, key: str, reason: str) -> None:
        self.append(f"{key}: {' '.join(reason.split())}")


class Table:
    """One table of the file. A key is read once; `close` reports those that were not read.

    Args:
        name: with dots; "" for the file itself.
        given: its content.
    """

    def __init__(self, name: str, given: Mapping[str, Any], problems: Problems) -> None:
        self._name, self._given, self._problems = name, given, problems
        self._known: list[str] = []

    def key(self, name: str) -> str:
        """Return the full name of a key."""
        return f"{self._name}.{name}" if self._name else name

    def has(self, name: str) -> bool:
        self._known.append(name)
        return name in self._given

    def wrong(self, name: str, reason: str) -> None:
        self._problems.add(self.key(name), reason)

    def text(self, name: str, default: str = "", *, needed: bool = False, check: Check | None = None) -> str:
        """Return a text; `check` raises a PubsubError for one that is not allowed."""
        if not self.has(name):
            if needed:
                self.wrong(name, "is missing")
            return default
        return self._checked(name, self._given[name], default, check)

    def _checked(self, name: str, value: object, default: str, check: Check | None) -> str:
        if not isinstance(value, str) or not value.strip():
            self.wrong(name, f'is {_shown(value)}; give a text in quotes, such as "a"')
            return default
        try:
            if check is not None:
                check(value)
        except PubsubError as error:
            self.wrong(name, str(error))
            return default
        return value

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self.text(name, default)
        if value not in allowed:
            self.wrong(name, f"is {value}; allowed: {', '.join(allowed)}")
            return default
        return value

    def texts(self, name: str, *, needed: bool = False, check: Check | None = None) -> tuple[str, ...]:
        """Return a list of different texts."""
        if not self.has(name):
            if needed:
                self.wrong(name, "is missing")
            return ()
        value = self._given[name]
        if not isinstance(value, list) or (needed and not value):
            self.wrong(name, f'is {_shown(value)}; give a list, such as ["a", "b"]')
            return ()
        found = [self._checked(f"{name}[{index}]", one, "", check) for index, one in enumerate(value)]
        for index, one in enumerate(found):
            if one and one in found[:index]:
                self.wrong(f"{name}[{index}]", f"{one} is listed twice")
        return tuple(one for one in found if one)

    def number(self, name: str, default: float, least: float, most: float, *, whole: bool = True) -> float:
        if not self.has(name):
            return default
        value = self._given[name]
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            self.wrong(name, f"is {_shown(value)}; give {kind} from {least:,} to {most:,}")
            return default
        return value

    def truth(self, name: str) -> bool:
        value = self._given.get(name, False) if self.has(name) else False
        if not isinstance(value, bool):
            self.wrong(name, f"is {_shown(value)}; give true or false")
            return False
        return value

    def table(self, name: str) -> Table | None:
        """Return a table within; None if it is absent."""
        if not self.has(name):
            return None
        value = self._given[name]
        if not isinstance(value, dict):
            self.wrong(name, f"is {_shown(value)}; write a table [{self.key(name)}]")
            return None
        return Table(self.key(name), value, self._problems)

    def pairs(self, name: str, check: Check | None = None) -> dict[str, str]:
        """Return a table of texts by free names, in the order of the file; {} if it is absent."""
        held = self.table(name)
        if held is None:
            return {}
        if not held._given:
            self.wrong(name, "is empty")
        return {each: held.text(each, check=check) for each in held._given}

    def close(self) -> None:
        """Report the keys that are not known."""
        for name in self._given:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, 1)
                hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(self._known[:LISTED_MAX])}"
                self.wrong(name, f"is not known; {hint}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
