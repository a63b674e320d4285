"""Values for the fields of a dataclass, so that a test goes through all fields, those of tomorrow included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from typing import Any


def unshown(value: Any) -> set[str]:
    """The fields, as `Class.field`, that have their default in all of a sample: such a sample would not miss them."""
    shown, seen = set(), set()

    def look(one: Any) -> None:
        if is_dataclass(one):
            for each in fields(one):
                name, held = f"{type(one).__name__}.{each.name}", getattr(one, each.name)
                seen.add(name)
                default = each.default_factory() if each.default_factory is not MISSING else each.default
                if held != default:
                    shown.add(name)
                look(held)
        elif isinstance(one, dict | tuple | list):
            for inner in one.values() if isinstance(one, dict) else one:
                look(inner)

    look(value)
    return seen - shown


def other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case Enum():
            return next(one for one in type(value) if one is not value)
        case int() | float():
            return value + 1
        case str():
            return ("b" if value[:1] == "a" else "a") + value[1:]
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case set() | frozenset():
            return type(value)(map(other, value))
        case () | []:
            return value
        case tuple() | list():
            return type(value)([*value[:-1], other(value[-1])])
        case dict():
            return {key: other(held) for key, held in value.items()}
        case None:
            return None
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: other(getattr(value, one.name)) for one in fields(value)})
    raise TypeError(f"add how {value!r} differs from others of its kind")


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """For each field its name, and the value with only that field different."""
    for one in fields(value):
        yield one.name, replace(value, **{one.name: other(getattr(value, one.name))})
