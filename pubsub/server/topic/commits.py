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
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import Position
from pubsub.server.topic.changes import Change, LogState
from pubsub.server.topic.spans import Span, row_of

UNCOPIED_BYTES: Final = 32 * 1024
"""Bytes of a body from which on it is a part of its own; smaller ones are joined, which costs less than a frame."""

FRAME_BYTES: Final = 1024 * 1024
"""Bytes of a part at most, where it is not one body."""

_LOOK_BYTES: Final = 64 * 1024
"""Bytes that are searched for the end of the line at once: what follows it may be long, and is not copied."""


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


class _Written:
    """The bodies that go behind the line: large ones as they lie, small ones joined."""

    def __init__(self, line: bytes) -> None:
        self.frames: list[Buffer] = [memoryview(line)[at : at + FRAME_BYTES] for at in range(0, len(line), FRAME_BYTES)]
        self._small: list[Buffer] = []
        self._small_bytes = 0

    def add(self, body: Buffer) -> None:
        if len(body) >= UNCOPIED_BYTES:
            self._join()
            self.frames.append(body)
            return
        if self._small_bytes + len(body) > FRAME_BYTES:
            self._join()
        self._small.append(body)
        self._small_bytes += len(body)

    def _join(self) -> None:
        if self._small_bytes:
            self.frames.append(b"".join(self._small))
        self._small, self._small_bytes = [], 0

    def end(self) -> list[Buffer]:
        self._join()
        return self.frames


class _Read:
    """The bytes of a commit, in order; what lies within one frame is not copied."""

    def __init__(self, frames: Iterable[Buffer]) -> None:
        self._frames = deque(memoryview(frame) for frame in frames if len(frame))

    def line(self) -> bytes:
        parts = []
        while self._frames:
            frame = self._frames.popleft()
            piece = bytes(frame[:_LOOK_BYTES])
            found, newline, _ = piece.partition(b"\n")
            parts.append(found)
            self._put_back(frame[len(found) + len(newline) :])
            if newline:
                return b"".join(parts)
        raise DecodeError("commit without its line")

    def take(self, size: Any) -> Buffer | None:
        if _whole(size, low=-1) == -1:
            return None
        parts: list[Buffer] = []
        while size:
            if not self._frames:
                raise ValueError("a body is longer than what follows")
            frame = self._frames.popleft()
            parts.append(frame[:size])
            self._put_back(frame[size:])
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _put_back(self, rest: memoryview) -> None:
        if len(rest):
            self._frames.appendleft(rest)

    def end(self) -> None:
        if self._frames:
            raise ValueError("bytes behind the last body")


def _put(body: Buffer | None, bodies: list[Buffer]) -> int:
    if body is None:
        return -1
    bodies.append(body)
    return len(body)


class _Kind(NamedTuple):
    """How a field's value is written and read."""

    write: Callable[[Any, list[Buffer]], Any]
    read: Callable[[Any, _Read], Any]


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
    log, low, high, watermark, since, *mark = value
    if mark not in ([], [1]):
        raise ValueError("not a mark")
    stop = None if high is None else _whole(high)
    return Span(_text(log), _whole(low), stop, _whole(watermark), _whole(since), bool(mark))


def _body(value: Any, bodies: _Read) -> Buffer:
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
        lambda value, _: [row_of(span) for span in value], lambda value, _: tuple(_span(span) for span in value)
    ),
    dict[int, int]: _Kind(
        lambda value, _: [list(item) for item in value.items()],
        lambda value, _: {_whole(key): _whole(held) for key, held in value},
    ),
    str | int | None: _Kind(
        lambda value, _: value,
        lambda value, _: None if value is None else _text(value) if type(value) is str else _whole(value),
    ),
    Buffer: _Kind(_put, _body),
    Buffer | None: _Kind(_put, lambda value, bodies: bodies.take(value)),
}


def _kinds(change: type[Any]) -> dict[str, _Kind]:
    hints = get_type_hints(change)
    return {field.name: _KINDS[hints[field.name]] for field in fields(change)}


_CHANGES: Final[dict[str, tuple[type[Any], dict[str, _Kind]]]] = {
    change.__name__: (change, _kinds(change)) for change in get_args(Change)
}


def encode(commit: Commit) -> bytes:
    """A commit as bytes."""
    return b"".join(frames(commit))


def frames(commit: Commit) -> list[Buffer]:
    """A commit as bytes in several parts, none of them empty: bodies of UNCOPIED_BYTES and more are not copied."""
    bodies: list[Buffer] = []
    changes = []
    for change in commit.changes:
        name = type(change).__name__
        values = {field: kind.write(getattr(change, field), bodies) for field, kind in _CHANGES[name][1].items()}
        changes.append([name, values])
    head = {"incarnation": commit.incarnation, "number": commit.number, "changes": changes}
    written = _Written(json.dumps(head, separators=(",", ":")).encode("ascii") + b"\n")
    for body in bodies:
        written.add(body)
    return written.end()


def decode(*parts: Buffer) -> Commit:
    """The commit that `encode` or `frames` wrote, however its bytes are cut into parts.

    Bodies are views into what is given where each lies in one part.

    Raises:
        DecodeError: it is something else, or of a server that knows other changes.
    """
    bodies = _Read(parts)
    line = bodies.line()
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
