"""A commit as bytes: what one loop of a server changes on disk, numbered, for another store to carry out alike.

    one line of JSON, then the bodies that it speaks of

The line has `incarnation` and `number`, by which commits of one store are ordered without a gap: incarnations rise with
each start, numbers count from 1 in each. `changes` lists each change as [name of its class, {field: value}], in the
order in which they are applied. A body stands there as its length, -1 for none; the bodies follow the line in that
order. So a receiver that has carried out (incarnation, number) knows whether the next one is missing, and one that it
has already.

Every kind of value that a field may have has its row in `_KINDS`; a field of another kind fails when this module is
imported, so that none can be left out. What cannot be read raises `DecodeError` and nothing else. What a store holds
and no commit brings is named in `storage.local`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import Position
from pubsub.server.topic.changes import Change, LogState
from pubsub.server.topic.spans import Span


@dataclass(slots=True)
class Commit:
    """One transaction of a server's loop.

    Attributes:
        incarnation: of the server's start.
        number: the first one of an incarnation is 1; each further one is one higher.
        changes: in the order in which they are applied.
    """

    incarnation: int
    number: int
    changes: list[Change]


class _Bodies:
    """The bytes behind the line, in order."""

    def __init__(self, rest: bytes = b"") -> None:
        self._rest = rest
        self.written: list[Buffer] = []

    def put(self, body: Buffer | None) -> int:
        if body is None:
            return -1
        self.written.append(body)
        return len(body)

    def take(self, size: Any) -> bytes | None:
        if _whole(size, low=-1) == -1:
            return None
        if size > len(self._rest):
            raise ValueError("a body is longer than what follows")
        body, self._rest = self._rest[:size], self._rest[size:]
        return body

    def end(self) -> None:
        if self._rest:
            raise ValueError("bytes behind the last body")


class _Kind(NamedTuple):
    """How a field's value is written and read."""

    write: Callable[[Any, _Bodies], Any]
    read: Callable[[Any, _Bodies], Any]


def _whole(value: Any, low: int = 0) -> int:
    if type(value) is not int or not low <= value <= NUMBER_MAX:
        raise ValueError("not a number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("not a text")
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


def _position(value: Any) -> Position:
    log, offset = value
    return _text(log), _whole(offset)


def _span(value: Any) -> Span:
    log, low, high, watermark, since = value
    return Span(_text(log), _whole(low), None if high is None else _whole(high), _whole(watermark), _whole(since))


def _body(value: Any, bodies: _Bodies) -> bytes:
    body = bodies.take(value)
    if body is None:
        raise ValueError("a body is missing")
    return body


_KINDS: Final[dict[Any, _Kind]] = {
    int: _Kind(lambda value, _: value, lambda value, _: _whole(value)),
    str: _Kind(lambda value, _: value, lambda value, _: _text(value)),
    bool: _Kind(lambda value, _: value, lambda value, _: _truth(value)),
    LogState: _Kind(lambda value, _: value.value, lambda value, _: LogState(value)),
    Position: _Kind(lambda value, _: list(value), lambda value, _: _position(value)),
    tuple[Span, ...]: _Kind(
        lambda value, _: [astuple(span) for span in value], lambda value, _: tuple(_span(span) for span in value)
    ),
    dict[int, int]: _Kind(
        lambda value, _: [list(item) for item in value.items()],
        lambda value, _: {_whole(key): _whole(held) for key, held in value},
    ),
    str | int | None: _Kind(
        lambda value, _: value,
        lambda value, _: None if value is None else _text(value) if type(value) is str else _whole(value),
    ),
    Buffer: _Kind(lambda value, bodies: bodies.put(value), _body),
    Buffer | None: _Kind(lambda value, bodies: bodies.put(value), lambda value, bodies: bodies.take(value)),
}


def _kinds(change: type[Any]) -> dict[str, _Kind]:
    hints = get_type_hints(change)
    return {field.name: _KINDS[hints[field.name]] for field in fields(change)}


_CHANGES: Final[dict[str, tuple[type[Any], dict[str, _Kind]]]] = {
    change.__name__: (change, _kinds(change)) for change in get_args(Change)
}


def encode(commit: Commit) -> bytes:
    """A commit as bytes."""
    bodies = _Bodies()
    changes = []
    for change in commit.changes:
        name = type(change).__name__
        values = {field: kind.write(getattr(change, field), bodies) for field, kind in _CHANGES[name][1].items()}
        changes.append([name, values])
    head = {"incarnation": commit.incarnation, "number": commit.number, "changes": changes}
    line = json.dumps(head, separators=(",", ":")).encode("ascii")
    return b"".join((line, b"\n", *bodies.written))


def decode(data: Buffer) -> Commit:
    """The commit that `encode` wrote.

    Raises:
        DecodeError: it is something else, or of a server that knows other changes.
    """
    line, newline, rest = bytes(data).partition(b"\n")
    if not newline:
        raise DecodeError("commit without its line")
    bodies = _Bodies(rest)
    try:
        head = json.loads(line)
        commit = Commit(_whole(head["incarnation"]), _whole(head["number"], low=1), [])
        for name, values in head["changes"]:
            change, kinds = _CHANGES[name]
            if values.keys() != kinds.keys():
                raise ValueError("other fields")
            commit.changes.append(change(**{field: kinds[field].read(values[field], bodies) for field in kinds}))
        bodies.end()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DecodeError(f"commit cannot be read: {type(error).__name__}") from None
    return commit
