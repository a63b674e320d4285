"""The settings of a topic at one holder, and the settings of two holders that become one.

The rules are those of docs/explanation/retention.md, T8, T10, T12 and T13; docs/explanation/defaults.md, Y1.

A version is the ID of the request that made it, so a request that two servers took made one version. A row carries the
versions that it was made from. In a merge, the row that was made from the other one replaces it. Two rows without that
relation are a conflict. Then both amounts stay, and a record goes only when each of them lets it go, because a deletion
cannot be undone. Of `rate` and `bytes` the newer value stays, since neither of them loses anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from pubsub.protocol.topic_defaults import TopicDefault
from pubsub.protocol.topic_settings import (
    EVER,
    NONE,
    TOMBSTONES,
    Amount,
    SettingsInForce,
    Values,
    format_drop,
    format_keep,
    format_rate,
    format_tombstones,
)
from pubsub.server.topic.spans import LogId, Number

LINEAGE_MAX: Final = 256
"""Versions that a row remembers. A merge with a row made from an older one reports a conflict, and so keeps more."""

ALTERNATIVES_MAX: Final = 8
"""Amounts that stay in a conflict. More of them become one amount that lets go of nothing which any of them keeps."""

Amounts = Annotated[tuple[Amount | None, ...], Meta(min_length=1, max_length=ALTERNATIVES_MAX)]
Version = Annotated[str, Meta(pattern=r"\A([0-9a-f]{16})?\Z")]


class Settings(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The settings of a topic; the defaults are those of a topic that was never configured.

    Attributes:
        version: the ID of the request that made them; "" for the defaults.
        stamp: the server's clock at that time (microseconds since 1970).
        lineage: the versions that they were made from, the oldest first.
        keep: amounts; a record that every subscriber has acknowledged goes when each of them lets it go. None is the
            server's default.
        drop: amounts; a record goes although a subscriber has not acknowledged it when each of them lets it go. None as
            in `keep`.
        expire: amounts; a record is not delivered any more when each of them says so. None as in `keep`.
        rate, throughput: the most records, and the most bytes, that are put in a second: one amount each. None as in
            `keep`.
        conflict: True if a merge met different values; the next request ends it.
        tombstones: how long the deletion of a key stays in a topic that keeps the latest records (microseconds).
        dropped: True if these or earlier settings let unacknowledged records go, so that some may have gone.
    """

    version: Version = ""
    stamp: Number = 0
    lineage: Annotated[tuple[LogId, ...], Meta(max_length=LINEAGE_MAX)] = ()
    keep: Amounts = (None,)
    drop: Amounts = (None,)
    conflict: bool = False
    dropped: bool = False
    expire: Amounts = (None,)
    tombstones: Number = TOMBSTONES
    rate: Amounts = (None,)
    throughput: Amounts = (None,)

    def made_from(self, version: str) -> bool:
        """Return True if these settings are this version, or were made from it."""
        return version in ("", self.version) or version in self.lineage

    def changed(self, version: str, stamp: int, values: Values) -> Settings:
        """Return the settings that a request makes of these."""
        lineage = (*self.lineage, self.version) if self.version else self.lineage
        made = Settings(
            version, stamp, lineage[-LINEAGE_MAX:], (values.keep,), (values.drop,), expire=(values.expire,),
            rate=(values.rate,), throughput=(values.throughput,),
        )  # fmt: skip
        if values.tombstones is not None:
            made = replace(made, tombstones=values.tombstones.age or TOMBSTONES)
        return replace(made, dropped=self.dropped or made.drops)

    @property
    def counts(self) -> bool:
        """True if an append may let an earlier record go."""
        return any(amount is not None and amount.counts for amount in (*self.keep, *self.drop))

    @property
    def compacts(self) -> bool:
        """True if only the last record of each key stays. Other values of a conflict keep all of them."""
        return all(amount is not None and amount.latest for amount in self.keep)

    @property
    def drops(self) -> bool:
        """True if a record may go that a subscriber has not acknowledged."""
        return EVER not in self.drop and None not in self.drop

    @property
    def without_ages(self) -> Settings:
        """These settings without their ages, for a server that cannot trust its clock."""
        return replace(self, keep=tuple(map(_without_age, self.keep)), drop=tuple(map(_without_age, self.drop)))

    @property
    def by_default(self) -> bool:
        """True if a server's default says what may go."""
        return None in self.keep or None in self.drop

    @property
    def expire_age(self) -> int | None:
        """The age in microseconds beyond which a record is not delivered any more; None: no age."""
        ages = [None if one is None else one.age for one in self.expire]
        return None if None in ages else max(age or 0 for age in ages)

    def kept_until(self, stamp: int) -> float:
        """Return the time from which age alone lets a record of this timestamp go; infinity if there is none."""
        return max(float("inf") if one is None or one.age is None else stamp + one.age for one in self.keep)

    def with_default(self, default: TopicDefault) -> Settings:
        """Return these settings with the server's default in place of each None."""
        if not self.by_default and None not in (*self.expire, *self.rate, *self.throughput):
            return self
        keep = dict.fromkeys(default.keep if one is None else one for one in self.keep)
        drop = dict.fromkeys(default.drop if one is None else one for one in self.drop)
        expire = dict.fromkeys(default.expire if one is None else one for one in self.expire)
        rate = dict.fromkeys(default.rate if one is None else one for one in self.rate)
        size = dict.fromkeys(default.throughput if one is None else one for one in self.throughput)
        amounts = map(tuple, (keep, drop, expire, rate, size))
        return replace(self, **dict(zip(("keep", "drop", "expire", "rate", "throughput"), amounts, strict=True)))

    @property
    def quota(self) -> tuple[int | None, int | None]:
        """The most records, and the most bytes, that are put in a second; None: no limit. Of settings in force."""
        (rate,), (throughput,) = self.rate, self.throughput
        return None if rate is None else rate.records, None if throughput is None else throughput.size

    @property
    def texts(self) -> dict[str, list[str]]:
        """The text of each amount, by setting; "" where the default holds."""
        return {
            "keep": ["" if one is None else format_keep(one) for one in self.keep],
            "drop": ["" if one is None else format_drop(one) for one in self.drop],
            "expire": ["" if one is None else format_drop(one) for one in self.expire],
            "tombstones": ["" if self.tombstones == TOMBSTONES else format_tombstones(self.tombstones)],
            "rate": ["" if one is None else format_rate(one) for one in self.rate],
            "bytes": ["" if one is None else format_rate(one) for one in self.throughput],
        }

    def body(self, default: TopicDefault) -> bytes:
        """Return the body of an answer with these settings at a server with this default."""
        in_force = self.with_default(default).texts | {"tombstones": [format_tombstones(self.tombstones)]}
        return SettingsInForce(self.version, self.stamp, self.conflict, in_force, self.texts, default.match).encode()


DEFAULTS: Final = Settings()

LETTERS: Final = Settings(keep=(Amount(age=14 * 24 * 3600 * 1_000_000),))
"""Settings of a new topic of dead letters, which needs no subscriber: each letter stays for 14 days after its put."""

BUILT_IN: Final = Settings(keep=(NONE,), drop=(EVER,), expire=(EVER,), rate=(EVER,), throughput=(EVER,))
"""The values in force of a topic without settings at a server without a default for it."""


def _without_age(amount: Amount | None) -> Amount | None:
    return amount if amount is None or not amount.age else replace(amount, age=None)


def merged(mine: Settings, its: Settings) -> Settings:
    """Return the settings of a topic that two holders have as one from now on."""
    dropped = mine.dropped or its.dropped
    if mine.version == its.version:
        return replace(mine, conflict=mine.conflict or its.conflict, dropped=dropped)
    if its.made_from(mine.version):
        return replace(its, dropped=dropped)
    if mine.made_from(its.version):
        return replace(mine, dropped=dropped)
    newer, older = (mine, its) if (mine.stamp, mine.version) > (its.stamp, its.version) else (its, mine)
    lineage = dict.fromkeys((*older.lineage, *newer.lineage, older.version, newer.version))
    return Settings(
        sha256(f"{older.version}&{newer.version}".encode()).hexdigest()[:16],
        newer.stamp,
        tuple(lineage)[-LINEAGE_MAX:],
        _both(mine.keep, its.keep),
        _both(mine.drop, its.drop),
        _amounts(mine) != _amounts(its) or mine.conflict or its.conflict,
        dropped,
        _both(mine.expire, its.expire),
        max(mine.tombstones, its.tombstones),
        newer.rate,
        newer.throughput,
    )


def _amounts(settings: Settings) -> tuple[Amounts | Number, ...]:
    return settings.keep, settings.drop, settings.expire, settings.tombstones, settings.rate, settings.throughput


def _both(mine: Iterable[Amount | None], its: Iterable[Amount | None]) -> tuple[Amount | None, ...]:
    """Return the amounts of both, in an order that does not depend on the receiver of the merge."""
    amounts = sorted({*mine, *its}, key=repr)
    if len(amounts) <= ALTERNATIVES_MAX:
        return tuple(amounts)
    largest = _largest(one for one in amounts if one is not None)
    return (largest, None) if None in amounts else (largest,)


def _largest(amounts: Iterable[Amount]) -> Amount:
    """Return an amount that lets a record go only if each of these does."""
    ages, sizes, records = (
        None if None in part else max(filter(None, part), default=0)
        for part in zip(*((one.age, one.size, one.records) for one in amounts), strict=True)
    )
    return Amount(ages, sizes, records)
