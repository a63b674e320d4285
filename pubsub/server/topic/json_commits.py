"""The first form of a commit: read always, and written for a standby of a release that reads no other form.

    one line of JSON, then the bodies that it refers to

The line lists each change as [name of its class, {field: value}]. A body appears there as its length, -1 for none. The
bodies follow the line in that order. This module may be deleted when no release without the field `form` of FOLLOW
needs an upgrade any more. Both members then write and read the second form, and no stream file has the first one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, get_args

from msgspec import to_builtins

from pubsub.protocol.batch import Buffer
from pubsub.server.topic.changes import Change
from pubsub.server.topic.spans import read_rows, row_of

_FIELDS: Final = {change.__name__: change.__struct_fields__ for change in get_args(Change)}

Take = Callable[[Any], Buffer | None]
"""Returns the next body; the argument is its length."""


def _put(body: Buffer | None, bodies: list[Buffer]) -> int:
    if body is None:
        return -1
    bodies.append(body)
    return len(body)


_WRITTEN: Final[dict[str, Callable[[Any, list[Buffer]], Any]]] = {
    "body": _put,
    "counters": lambda counters, _: list(counters.items()),
    "history": lambda spans, _: [row_of(span) for span in spans],
    "backlog": lambda spans, _: [row_of(span) for span in spans],
    "settings": lambda settings, _: to_builtins(settings),
    "removal": lambda removal, _: to_builtins(removal),
    "parts": lambda parts, _: to_builtins(parts),
    "purged": lambda places, _: to_builtins(places),
    "row": lambda row, _: to_builtins(row),
    "rows": lambda rows, _: to_builtins(rows),
}
_READ: Final[dict[str, Callable[[Any, Take], Any]]] = {
    "body": lambda size, take: take(size),
    "counters": lambda pairs, _: dict(pairs),
    "history": lambda rows, _: read_rows(rows),
    "backlog": lambda rows, _: read_rows(rows),
}
"""Fields with a form of their own; JSON writes the other fields directly."""


def encode(incarnation: int, number: int, changes: Sequence[Change]) -> bytes:
    bodies: list[Buffer] = []
    rows = []
    for change in changes:
        name, values = type(change).__name__, {}
        for field in _FIELDS[name]:
            value, write = getattr(change, field), _WRITTEN.get(field)
            values[field] = write(value, bodies) if write else value
        rows.append((name, values))
    head = {"incarnation": incarnation, "number": number, "changes": rows}
    line = json.dumps(head, separators=(",", ":")).encode("ascii")
    return b"".join((line, b"\n", *bodies))


def decode(data: bytes) -> tuple[Any, Any, list[list[Any]]]:
    """Return incarnation, number and changes, with fields in order and unchecked.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: the bytes are no commit of this form.
    """
    end = data.index(b"\n")
    head, view, place = json.loads(data[:end]), memoryview(data), end + 1

    def take(size: Any) -> Buffer | None:
        nonlocal place
        if type(size) is not int or not -1 <= size <= len(data) - place:
            raise ValueError("a body is longer than the bytes that follow")
        place += max(size, 0)
        return None if size < 0 else view[place - size : place]

    changes = []
    for name, values in head["changes"]:
        fields = _FIELDS[name]
        if values.keys() != set(fields):
            raise ValueError("a change has other fields")
        changes.append([name, *(_READ[one](values[one], take) if one in _READ else values[one] for one in fields)])
    if place != len(data):
        raise ValueError("bytes follow the last body")
    return head["incarnation"], head["number"], changes
