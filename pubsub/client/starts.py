"""Check where a subscription or a read starts (docs/how-to/look-back.md, *Starts*).

A program gives a `datetime`, a message's position or a word. A command and an HTTP request give a text. Both become the
start of the protocol.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pubsub.base.limits import START_RECORDS_MAX
from pubsub.errors import CallerError
from pubsub.protocol.names import EARLIEST, LATEST, Position, Start, format_position, parse_start

StartAt = str | datetime | Position
"""Type of the argument `start`."""

AHEAD_SECONDS: Final = 60
"""How far a start may be ahead of this host's clock. A seek to a start that the server refuses has lost its place."""

FORM: Final = "earliest, latest, last:N, a time such as 2026-11-01T00:00Z, an age such as -1h, or a message ID"
"""The forms of a start in a text."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_AGE: Final = re.compile(r"-(\d{1,9})(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BARE: Final = (
    "a bare number may be seconds, milliseconds or an offset: give a datetime with a time zone, or a message's position"
)


def check_start(start: StartAt, name: str = "start") -> Start:
    """Return the protocol's start.

    Args:
        start: as a program gives it.
        name: name of the argument, for the error.

    Raises:
        CallerError: it has another form, or a datetime has no time zone.
    """
    if isinstance(start, datetime):
        return _stamp(start, name)
    if isinstance(start, tuple):
        return _position(start, name)
    if not isinstance(start, str):
        number = isinstance(start, int | float) and not isinstance(start, bool)
        allowed = "earliest, latest, last:N, a datetime with a time zone or a message's position"
        raise CallerError(f"{name} is {allowed}, not {_BARE if number else type(start).__name__}")
    if start == EARLIEST:
        return 0  # A server of an earlier release refuses this form; it would begin at the end for the word.
    try:
        if start[:1] != "@":
            return parse_start(start)
    except ValueError:
        pass
    why = f"; {_BARE}" if start.lstrip("+-").isdecimal() else ""
    if start.startswith("last:"):
        why = f"; N is a number from 1 to {START_RECORDS_MAX:,}"
    raise CallerError(f"{name} is earliest, latest, last:N, a datetime or a message's ID, not {start[:60]!r}{why}")


def check_begin(start: StartAt, now: float) -> Start:
    """Return the protocol's start of a subscription.

    Args:
        start: as a program gives it.
        now: seconds since 1970.

    Raises:
        CallerError: as `check_start`, or a datetime lies in the future.
    """
    return _not_ahead(check_start(start), now, "start")


def check_stop(stop: StartAt | None) -> Start:
    """Return the protocol's end of a range; `latest` for None.

    Args:
        stop: None or `latest`; a datetime, which is not in the range; or the position of the last message.

    Raises:
        CallerError: it has another form, or a datetime has no time zone.
    """
    return LATEST if stop is None else _stop(check_start(stop, "stop"), "stop", stop)


def parse_stop_text(text: str | None, now: float, name: str = "stop") -> Start:
    """Return the protocol's end of a range that a text gives; arguments and errors as `parse_start_text`."""
    if text is None:
        return LATEST
    return int(now * 1_000_000) if text == "now" else _stop(_parsed(text, now, name), name, text)


def _stop(stop: Start, name: str, given: object) -> Start:
    if stop == 0 or (isinstance(stop, str) and stop != LATEST):
        raise CallerError(f"{name} is latest, a time or the last message's position; not {str(given)[:60]!r}")
    return stop


def parse_start_text(text: str, now: float, name: str = "start") -> Start:
    """Return the protocol's start that a text gives.

    Args:
        text: one of FORM.
        now: seconds since 1970, which ages count from.
        name: name of the option, for the error.

    Raises:
        CallerError: it has another form, or a time has no time zone or lies in the future.
    """
    return _not_ahead(_parsed(text, now, name), now, name)


def _parsed(text: str, now: float, name: str) -> Start:
    age = _AGE.fullmatch(text)
    if age is not None:
        return max(0, int(now * 1_000_000) - int(age[1]) * _UNITS[age[2]] * 1_000_000)
    if text[:4].isdecimal() and text[4:5] == "-":
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise CallerError(f"{name} {text[:60]!r} is no time; write one as 2026-11-01T00:00Z") from None
        if moment.utcoffset() is None:
            day = f"{text}T00:00" if len(text) == len("2026-11-01") else text[:60]
            raise CallerError(f"{name} {text[:60]!r} has no time zone; write {day}Z for UTC, or {day}+01:00")
        return _stamp(moment, name)
    try:
        return check_start(text, name)
    except CallerError:
        pass
    why = f" ({_BARE})" if text.lstrip("+-").isdecimal() else ""
    if text.startswith("last:"):
        why = f" (N is a number from 1 to {START_RECORDS_MAX:,})"
    raise CallerError(f"{name} is {FORM}; not {text[:60]!r}{why}")


def _not_ahead(start: Start, now: float, name: str) -> Start:
    if isinstance(start, int) and start > (now + AHEAD_SECONDS) * 1_000_000:
        raise CallerError(f"{name} {describe(start)} lies in the future; for messages from now on, name latest")
    return start


def _stamp(moment: datetime, name: str) -> int:
    if moment.utcoffset() is None:
        raise CallerError(f"{name} is a datetime without a time zone; give it one, such as tzinfo=UTC")
    return max(0, (moment - _EPOCH) // _MICROSECOND)


def _position(place: Position, name: str) -> Position:
    try:
        found = parse_start(format_position(place))
    except (ValueError, IndexError):
        found = ""
    if not isinstance(found, tuple) or len(place) != len(found):
        raise CallerError(f"{name} is no position: use Message.position or Message.id, not {place!r}"[:200])
    return found


def describe(start: Start) -> str:
    """Return a start for a person."""
    if start == 0:
        return EARLIEST
    if isinstance(start, int):
        return (_EPOCH + start * _MICROSECOND).isoformat().replace("+00:00", "Z")
    return start if isinstance(start, str) else format_position(start)


__all__ = [
    "EARLIEST",
    "FORM",
    "LATEST",
    "StartAt",
    "check_begin",
    "check_start",
    "check_stop",
    "describe",
    "parse_start_text",
    "parse_stop_text",
]
