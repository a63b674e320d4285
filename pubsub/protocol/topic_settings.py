"""The settings of a topic, as their texts: how much of it is kept, and when unacknowledged messages are dropped.

    keep    how much stays although every subscriber has acknowledged it
            none | ever | latest | amounts separated by commas: an age, bytes, records
    drop    the amount beyond which a message goes although a subscriber has not acknowledged it
            never | an age, bytes, or both separated by a comma
    tombstones  with keep=latest: how long the deletion of a key stays, at least an hour
    expire  the age beyond which a message is not delivered any more, though it may be stored
            never | an age
    rate    the most messages that clients put in a second
            none | a number, such as 1000/s
    bytes   the most bytes that clients put in a second
            none | a number of bytes, such as 5MiB/s

Of several amounts any one lets a message go: `7d,10GiB` keeps at most ten gibibytes of at most seven days. With an
empty text the topic has no value of its own, and the default of its server holds (`protocol.topic_defaults`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError

_AGES: Final = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6, "w": 604_800 * 10**6}
_SIZES: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_AGE: Final = re.compile(r"([0-9]{1,18}) ?(s|m|h|d|w)")
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?(|Ki|Mi|Gi|Ti)B")
_RECORDS: Final = re.compile(r"([0-9]{1,18}) ?records?")

TEXT_MAX: Final = 200
"""Most characters of one setting."""

SETTINGS: Final = ("keep", "drop", "expire", "tombstones", "rate", "bytes")
"""The names of the settings."""

NOT_SOLE_OWNER: Final = "not sole owner"
"""Reason in a report why records stay that the settings let go: another server may hold the topic, too."""

CLOCK_AHEAD: Final = "clock ahead of the proxies, or not compared yet"
"""Such a reason: the server does not trust ages."""

OTHER_DEFAULTS: Final = "other defaults at"
"""Begin of such a reason: these servers have other defaults, so that no default lets a record go."""

PATTERNED: Final = ("keep", "drop", "expire", "rate", "bytes")
"""The settings that a server's default by pattern may have."""

OR: Final = " or "
"""Between the values of a setting after a merge of two servers with different ones."""

KEEP_FORM: Final = "none, ever, latest, or amounts such as 7d, 10GiB, 1000 records (several separated by commas)"
RATE_FORM: Final = "none, or messages a second such as 1000/s"
BYTES_FORM: Final = "none, or bytes a second such as 5MiB/s"
EXPIRE_FORM: Final = "never, or an age such as 1h"
TOMBSTONES_FORM: Final = "an age such as 1d, at least 1h"
DROP_FORM: Final = "never, an age such as 30d, or bytes such as 10GiB"

_Amount = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class Amount(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """An amount of history, counted back from the newest record. A record beyond any part of it goes.

    Attributes:
        age: microseconds; None: no age lets a record go.
        size: bytes of the records after it; None as before.
        records: number of the records after it; None as before.
        latest: True if a record with a key goes once a later record of the same key follows it.
    """

    age: _Amount | None = None
    size: _Amount | None = None
    records: _Amount | None = None
    latest: bool = False

    @property
    def counts(self) -> bool:
        """True if it depends on later records, so that an append can let a record go."""
        return self.size is not None or self.records is not None

    def keeps_as_much_as(self, other: Amount) -> bool:
        """Return True if it lets nothing go that the other amount keeps."""
        parts = ((self.age, other.age), (self.size, other.size), (self.records, other.records))
        if other in (NONE, self):
            return True
        return not self.latest and all(mine is None or (its is not None and mine >= its) for mine, its in parts)


EVER: Final = Amount()
"""Nothing goes."""

LATEST: Final = Amount(latest=True)
"""Of each key, the last record stays. A record without a key stays, too."""

TOMBSTONES: Final = 86_400 * 10**6
"""Default of `tombstones` (microseconds)."""

TOMBSTONES_MIN: Final = 3600 * 10**6

NONE: Final = Amount(age=0)
"""A record goes as soon as every subscriber has acknowledged it."""


def parse_keep(text: str) -> Amount:
    """Parse the text of `keep`.

    Raises:
        ValueError: it has another form; the message is the form.
    """
    return {"none": NONE, "": NONE, "ever": EVER, "latest": LATEST}.get(text) or _parse(text, KEEP_FORM, records=True)


def parse_drop(text: str) -> Amount:
    """Parse the text of `drop`. Raises ValueError as `parse_keep` does."""
    return EVER if text in {"never", ""} else _parse(text, DROP_FORM, records=False)


def parse_tombstones(text: str) -> Amount:
    """Parse the text of `tombstones`. Raises ValueError as `parse_keep` does."""
    match = _AGE.fullmatch(text or "1d")
    age = int(match[1]) * _AGES[match[2]] if match else 0
    if not TOMBSTONES_MIN <= age <= NUMBER_MAX:
        raise ValueError(TOMBSTONES_FORM)
    return Amount(age)


def format_tombstones(age: int) -> str:
    return _shortest(age, {unit: _AGES[unit] for unit in "smhd"}, "")


def parse_expire(text: str) -> Amount:
    """Parse the text of `expire`. Raises ValueError as `parse_keep` does."""
    found = EVER if text in {"never", ""} else _parse(text, EXPIRE_FORM, records=False)
    if found.size is not None:
        raise ValueError(EXPIRE_FORM)
    return found


def parse_rate(text: str) -> Amount:
    """Parse the text of `rate`: the amount has only records. Raises ValueError as `parse_keep` does."""
    return _a_second(text, "records", " records", RATE_FORM)


def parse_bytes(text: str) -> Amount:
    """Parse the text of `bytes`: the amount has only a size. Raises ValueError as `parse_keep` does."""
    return _a_second(text, "size", "", BYTES_FORM)


def _a_second(text: str, part: str, unit: str, form: str) -> Amount:
    if text in {"none", ""}:
        return EVER
    name, number = _part(text.removesuffix("/s").strip() + unit) if text.endswith("/s") else ("", 0)
    if name != part or not 0 < number <= NUMBER_MAX:
        raise ValueError(form)
    return Amount(size=number) if part == "size" else Amount(records=number)


def _parse(text: str, form: str, *, records: bool) -> Amount:
    found: dict[str, int] = {}
    for part in text[: TEXT_MAX + 1].split(","):
        name, number = _part(part.strip())
        if not name or name in found or not 0 < number <= NUMBER_MAX or (name == "records" and not records):
            raise ValueError(form)
        found[name] = number
    if len(text) > TEXT_MAX:
        raise ValueError(form)
    return Amount(found.get("age"), found.get("size"), found.get("records"))


def _part(text: str) -> tuple[str, int]:
    if match := _AGE.fullmatch(text):
        return "age", int(match[1]) * _AGES[match[2]]
    if match := _SIZE.fullmatch(text):
        return "size", int(match[1]) * _SIZES[match[2]]
    if match := _RECORDS.fullmatch(text):
        return "records", int(match[1])
    return "", 0


def format_keep(amount: Amount) -> str:
    return {NONE: "none", EVER: "ever", LATEST: "latest"}.get(amount) or _format(amount)


def format_drop(amount: Amount) -> str:
    return "never" if amount == EVER else _format(amount)


def format_rate(amount: Amount) -> str:
    """Format a value of `rate` or `bytes`."""
    return "none" if amount == EVER else f"{_format(amount).removesuffix(' records')}/s"


def _format(amount: Amount) -> str:
    parts = []
    if amount.age is not None:
        parts.append(_shortest(amount.age, {unit: _AGES[unit] for unit in "smhd"}, ""))
    if amount.size is not None:
        parts.append(_shortest(amount.size, _SIZES, "B"))
    if amount.records is not None:
        parts.append(f"{amount.records} records")
    return ",".join(parts)


def _shortest(number: int, units: dict[str, int], ending: str) -> str:
    """Return a number with the largest unit that divides it."""
    unit = max((unit for unit, factor in units.items() if number % factor == 0), key=units.__getitem__)
    return f"{number // units[unit]}{unit}{ending}"


PARSERS: Final[Mapping[str, Callable[[str], Amount]]] = {
    "keep": parse_keep,
    "drop": parse_drop,
    "expire": parse_expire,
    "tombstones": parse_tombstones,
    "rate": parse_rate,
    "bytes": parse_bytes,
}
"""By setting: parses its text, or raises ValueError with the form."""


class Values(NamedTuple):
    """A topic's own values, in the order of SETTINGS; None where a default holds.

    `throughput` is the setting `bytes`.
    """

    keep: Amount | None = None
    drop: Amount | None = None
    expire: Amount | None = None
    tombstones: Amount | None = None
    rate: Amount | None = None
    throughput: Amount | None = None


def own_value(text: str, parse: Callable[[str], Amount]) -> Amount | None:
    """Return a topic's own value of a setting; None for an empty text.

    Raises:
        ValueError: as `parse`.
    """
    return parse(text) if text else None


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """The answer to CONFIGURE and SETTINGS.

    Attributes:
        version, stamp: of the topic's own settings.
        conflict: True if a merge met different values.
        values: the texts in force, by setting.
        own: the topic's own texts, by setting; "" where the default holds.
        match: the pattern of the server's default for the topic; "" if none matches.
    """

    version: str
    stamp: int
    conflict: bool
    values: Mapping[str, Sequence[str]]
    own: Mapping[str, Sequence[str]]
    match: str = ""

    def encode(self) -> bytes:
        facts = {"version": self.version, "stamp": self.stamp, **self.values, "conflict": self.conflict}
        return json.dumps(facts | {"own": self.own, "match": self.match}, separators=(",", ":")).encode("ascii")


def encode_settings(values: dict[str, str]) -> bytes:
    """Return the body of CONFIGURE: the texts of the settings by name. A server takes a missing one as empty."""
    values = {name: text for name, text in values.items() if text}
    return json.dumps(values, separators=(",", ":"), sort_keys=True).encode("ascii")


def decode_settings(body: bytes) -> Values:
    """Read the body of CONFIGURE. A missing or empty setting is None: its default holds.

    Raises:
        DecodeError: a setting is unknown here, or its text has another form.
    """
    try:
        values: Any = json.loads(body) if len(body) <= len(SETTINGS) * (TEXT_MAX + 50) else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise DecodeError("the settings are not JSON with a text for each name")
    if unknown := sorted(values.keys() - set(SETTINGS)):
        raise DecodeError(f"a topic has no setting {unknown[0][:40]!r} in this release")
    found: dict[str, Amount | None] = {}
    for name, parse in PARSERS.items():
        try:
            found[name] = own_value(values.get(name, ""), parse)
        except ValueError as error:
            raise DecodeError(f"{name} is {error}") from None
    return Values(*found.values())
