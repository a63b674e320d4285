"""Values for the fields of a dataclass or a Struct, so that a test goes through all of them, also future ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from msgspec import NODEFAULT, Struct, structs

NONE = (dataclasses.MISSING, NODEFAULT)


def fields(value: Any) -> tuple[Any, ...]:
    """The fields of a dataclass or a Struct."""
    of_struct = isinstance(value, Struct) or (isinstance(value, type) and issubclass(value, Struct))
    return structs.fields(value) if of_struct else dataclasses.fields(value)


def replace(value: Any, /, **changed: Any) -> Any:
    """The same value with other fields."""
    return structs.replace(value, **changed) if isinstance(value, Struct) else dataclasses.replace(value, **changed)


def unshown(value: Any) -> set[str]:
    """The fields, as `Class.field`, that have their default in all of a sample: such a sample would not miss them."""
    shown, seen = set(), set()

    def look(one: Any) -> None:
        if is_dataclass(one) or isinstance(one, Struct):
            for each in fields(one):
                name, held = f"{type(one).__name__}.{each.name}", getattr(one, each.name)
                seen.add(name)
                default = each.default_factory() if each.default_factory not in NONE else each.default
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
    if (is_dataclass(value) or isinstance(value, Struct)) and not isinstance(value, type):
        return replace(value, **{one.name: other(getattr(value, one.name)) for one in fields(value)})
    raise TypeError(f"add how {value!r} differs from others of its kind")


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """For each field its name, and the value with only that field different."""
    for one in fields(value):
        yield one.name, replace(value, **{one.name: other(getattr(value, one.name))})
