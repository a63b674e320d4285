"""The bodies of messages about consumer groups (docs/explanation/groups.md).

A range is `log.low-high`: offsets from `low` up to `high` - 1. In a keyed group it is `log.low-high:part`, and has only
the records of that part.

    done RANGE · keep RANGE · offered RANGE · claim RANGE            the body of WORK, one line each
    tried log.offset attempts error · later log.offset milliseconds attempts · dead log.offset attempts reason
    held RANGE attempts=2 doubtful=1 · offered RANGE … · lost RANGE dropped=1    the server's answer, one line each
    (an empty line) the records, as in the answer to GET

A part is the CRC-32 of a record's key modulo the number of parts. A record without a key has its publisher's name in
place of the key, so the records of one publisher without keys keep their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from pubsub.base.limits import (
    ATTEMPT_ERROR_LENGTH_MAX,
    ATTEMPTS_MAX,
    DEAD_REASON_LENGTH_MAX,
    DELAY_SECONDS_MAX,
    HOLDING_LINES_MAX,
    LOST_SECONDS_MIN,
    NUMBER_MAX,
    PARTS_MAX,
    WORK_LINES_MAX,
)
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import Position, is_hex, parse_number, parse_position

SHARED: Final = "shared"
KEYED: Final = "keyed"
WAIT: Final = "wait"
REDELIVER: Final = "redeliver"

LINE_LENGTH_MAX: Final = 16 + 3 * 20 + DEAD_REASON_LENGTH_MAX + 40
"""Characters of one line."""

DROPPED: Final = "dropped"
PURGED: Final = "purged"
HELD: Final = "held"
OFFERED: Final = "offered"
LOST: Final = "lost"
_HOLDINGS: Final = frozenset({HELD, OFFERED, LOST})

_REASON: Final = re.compile(rf"[!-~]{{1,{DEAD_REASON_LENGTH_MAX}}}")
_ERROR: Final = re.compile(rf"[!-~]{{1,{ATTEMPT_ERROR_LENGTH_MAX}}}")
_MARK: Final = re.compile(r"([a-z_]{1,20})=([!-~]{0,40})")
_Item = TypeVar("_Item")


class Range(NamedTuple):
    """Offsets [low, high) of a log.

    Attributes:
        part: in a keyed group, the part; the range has its records alone. None in a shared group.
    """

    log: str
    low: int
    high: int
    part: int | None = None


class Tried(NamedTuple):
    """A record that a handler has begun; `attempts` counts all that were begun so far, at any member.

    Attributes:
        error: of the handler, percent-encoded; "": none is known, and the line then ends with the attempts.
    """

    log: str
    offset: int
    attempts: int
    error: str = ""


class Later(NamedTuple):
    """A record to be handed out again after `delay_ms` milliseconds; `attempts` as in `Tried`."""

    log: str
    offset: int
    delay_ms: int
    attempts: int


class Dead(NamedTuple):
    """A record for the dead letters; `reason` is percent-encoded, `attempts` as in `Tried`."""

    log: str
    offset: int
    attempts: int
    reason: str


class Say(NamedTuple):
    """The body of WORK.

    Attributes:
        done: ranges with effects that are durable at the member.
        keep: claimed ranges with which the member goes on.
        offered: offered ranges with which it goes on.
        claim: offered ranges that it asks for.
        tried, later, dead: records that it has begun, or gives back.
    """

    done: tuple[Range, ...] = ()
    keep: tuple[Range, ...] = ()
    offered: tuple[Range, ...] = ()
    claim: tuple[Range, ...] = ()
    tried: tuple[Tried, ...] = ()
    later: tuple[Later, ...] = ()
    dead: tuple[Dead, ...] = ()


NOTHING: Final = Say()


class Holding(NamedTuple):
    """A line of the answer to WORK.

    Attributes:
        kind: HELD, OFFERED or LOST.
        attempts: begun so far, at any member.
        doubtful: True if an operator, or the group's policy, gave the records up while another member had them.
        reason: with LOST, DROPPED if settings of the topic let the records go, PURGED if an operator did; otherwise "".
    """

    kind: str
    range: Range
    attempts: int = 0
    doubtful: bool = False
    reason: str = ""


class GroupValues(NamedTuple):
    """The values of a group, in the answer to SUBSCRIBE.

    Attributes:
        mode: SHARED or KEYED.
        parts: of a keyed group; 0: it is shared.
        on_lost: WAIT or REDELIVER.
        lost_ms: silence after which REDELIVER gives up the claims of a member (milliseconds).
        attempts: after so many a record becomes a dead letter.
        suspended: True if an operator must resume the group.
        made: time at which it was made (microseconds since 1970).
    """

    mode: str
    parts: int
    on_lost: str
    lost_ms: int
    attempts: int
    suspended: bool = False
    made: int = 0


def part_of(key: Buffer, publisher: str, parts: int) -> int:
    """Return the part of a record.

    Args:
        key: of the record; b"" for none.
        publisher: `client ID/store ID` of the client that put the record, also for a delayed one.
        parts: the number of parts of the group.
    """
    return crc32(key or publisher.encode("ascii")) % parts


def lost_part(log: str, parts: int) -> int:
    """Return the part that is told of lost records of a log."""
    return crc32(log.encode("ascii")) % parts


def format_range(one: Range) -> str:
    """Return a range as text."""
    text = f"{one.log}.{one.low}-{one.high}"
    return text if one.part is None else f"{text}:{one.part}"


def parse_range(text: str) -> Range:
    """Return the range that `format_range` wrote.

    Raises:
        ValueError: the text is none.
    """
    places, colon, part = text.partition(":")
    log, dot, offsets = places.partition(".")
    low, dash, high = offsets.partition("-")
    if not dot or not dash or not is_hex(log):
        raise ValueError(f"not a range: {text[:60]!r}")
    found = Range(log, parse_number(low), parse_number(high), parse_number(part) if colon else None)
    if not 0 < found.low < found.high or (found.part is not None and found.part >= PARTS_MAX):
        raise ValueError(f"not a range: {text[:60]!r}")
    return found


def join_say(say: Say) -> bytes:
    """Return the body that `split_say` reads."""
    lines = [
        f"{word} {format_range(one)}" for word in ("done", "keep", "offered", "claim") for one in getattr(say, word)
    ]
    lines += [f"tried {one.log}.{one.offset} {one.attempts} {one.error}".rstrip() for one in say.tried]
    lines += [f"later {one.log}.{one.offset} {one.delay_ms} {one.attempts}" for one in say.later]
    lines += [f"dead {one.log}.{one.offset} {one.attempts} {one.reason}" for one in say.dead]
    return "\n".join(lines).encode("ascii")


def split_say(body: Buffer) -> Say:
    """Return the lines of the body of a WORK.

    Raises:
        DecodeError: the body has another form, or too many lines.
    """
    found: dict[str, list[Any]] = {word: [] for word in Say._fields}
    for line in _lines(body, WORK_LINES_MAX):
        word, *rest = line.split(" ")
        reader = _SAYS.get(word)
        if reader is None:
            raise DecodeError(f"a member says {word[:40]!r}")
        found[word].append(_read(reader, rest, line))
    return Say(*map(tuple, found.values()))


def _position(text: str) -> Position:
    position = parse_position(text)
    if position is None or not position[1]:
        raise ValueError(f"not a record: {text[:60]!r}")
    return position


def _attempts(text: str) -> int:
    return min(parse_number(text), ATTEMPTS_MAX)


def _range(text: str) -> Range:
    return parse_range(text)


def _tried(place: str, attempts: str, error: str | None = None) -> Tried:
    if error is not None and _ERROR.fullmatch(error) is None:
        raise ValueError(f"not an error: {error[:60]!r}")
    return Tried(*_position(place), _attempts(attempts), error or "")


def _later(place: str, delay: str, attempts: str) -> Later:
    return Later(*_position(place), min(parse_number(delay), DELAY_SECONDS_MAX * 1000), _attempts(attempts))


def _dead(place: str, attempts: str, reason: str) -> Dead:
    if _REASON.fullmatch(reason) is None:
        raise ValueError(f"not a reason: {reason[:60]!r}")
    return Dead(*_position(place), _attempts(attempts), reason)


_SAYS: Final[dict[str, Callable[..., Any]]] = {
    "done": _range,
    "keep": _range,
    "offered": _range,
    "claim": _range,
    "tried": _tried,
    "later": _later,
    "dead": _dead,
}


def join_holdings(holdings: Iterable[Holding], records: Buffer = b"") -> bytes:
    """Return the body of an answer to WORK.

    Args:
        records: as in the answer to GET; b"" for none.
    """
    lines = []
    for one in holdings:
        words = [one.kind, format_range(one.range)]
        words += [f"attempts={one.attempts}"] if one.attempts else []
        words += ["doubtful=1"] if one.doubtful else []
        words += [f"{one.reason}=1"] if one.reason else []
        lines.append(" ".join(words))
    head = "\n".join(lines).encode("ascii")
    return b"".join((head, b"\n\n", records)) if len(records) else head


def split_holdings(body: Buffer) -> tuple[tuple[Holding, ...], bytes]:
    """Return the holdings, and the records as `Records` reads them, b"" for none.

    Raises:
        DecodeError: the body has another form, or too many lines.
    """
    head, _, records = bytes(body).partition(b"\n\n")
    out = []
    for line in _lines(head, HOLDING_LINES_MAX):
        kind, *rest = line.split(" ")
        if kind not in _HOLDINGS:
            raise DecodeError(f"a server says {kind[:40]!r}")
        out.append(_read(lambda place, *marks, kind=kind: _holding(kind, place, marks), rest, line))
    return tuple(out), records


def _holding(kind: str, place: str, marks: tuple[str, ...]) -> Holding:
    found = dict(_mark(mark) for mark in marks)
    reason = next((why for why in (DROPPED, PURGED) if found.get(why) == "1"), "")
    return Holding(
        kind,
        parse_range(place),
        min(parse_number(found.get("attempts", "0")), NUMBER_MAX),
        found.get("doubtful") == "1",
        reason if kind == LOST else "",
    )


def _mark(text: str) -> tuple[str, str]:
    match = _MARK.fullmatch(text)
    if match is None:
        raise ValueError(f"not a mark: {text[:60]!r}")
    return match[1], match[2]


def _lines(body: Buffer, most: int) -> list[str]:
    if not len(body):
        return []
    if len(body) > most * (LINE_LENGTH_MAX + 1):
        raise DecodeError(f"lines of {len(body)} bytes")
    try:
        lines = bytes(body).decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise DecodeError("lines are not ASCII") from None
    if len(lines) > most:
        raise DecodeError(f"{len(lines)} lines, above {most}")
    return lines


def _read(reader: Callable[..., _Item], words: list[str], line: str) -> _Item:
    try:
        return reader(*words)
    except ValueError as error:
        raise DecodeError(str(error)) from None
    except TypeError:
        raise DecodeError(f"a line with {len(words)} words: {line[:60]!r}") from None


# The values of a group, and positions in a request


def encode_values(values: GroupValues) -> bytes:
    """Return the body of an answer to SUBSCRIBE."""
    return json.dumps(values._asdict(), separators=(",", ":")).encode("ascii")


def decode_values(body: Buffer) -> GroupValues:
    """Read the values of a group; unknown names are left out.

    Raises:
        DecodeError: the body has another form.
    """
    try:
        facts: Any = json.loads(bytes(body))
        values = GroupValues(**{name: facts[name] for name in GroupValues._fields})
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DecodeError("the values of a group cannot be read") from None
    numbers = (values.parts, values.lost_ms, values.attempts, values.made)
    if (
        values.mode not in (SHARED, KEYED)
        or values.on_lost not in (WAIT, REDELIVER)
        or type(values.suspended) is not bool
        or not all(type(number) is int and 0 <= number <= NUMBER_MAX for number in numbers)
        or (values.mode == KEYED) != (0 < values.parts <= PARTS_MAX)
        or values.lost_ms < LOST_SECONDS_MIN * 1000
        or not 0 < values.attempts <= ATTEMPTS_MAX
    ):
        raise DecodeError("the values of a group are out of range")
    return values


def join_places(places: Iterable[Position]) -> bytes:
    """Return the body of a request about some dead letters."""
    return " ".join(f"{log}.{offset}" for log, offset in places).encode("ascii")


def split_places(body: Buffer) -> tuple[Position, ...]:
    """Return the positions of a body; an empty one has none.

    Raises:
        DecodeError: the body has another form.
    """
    try:
        words = bytes(body).decode("ascii").split(" ") if len(body) else []
        return tuple(map(_position, words))
    except ValueError as error:
        raise DecodeError(f"not positions: {str(error)[:80]}") from None
