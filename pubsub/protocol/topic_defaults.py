"""The defaults of topics' settings by pattern, as a server's configuration has them.

    audit.> keep=90d drop=never

Of several rules the first one counts that matches a topic. A value that it lacks is the built-in default. A setting
that the topic has itself is preferred to each of these.

All servers of a cluster need the same rules, because a topic moves between them. They compare a digest of the rules
(docs/explanation/defaults.md, Y1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pubsub.errors import InvalidName
from pubsub.protocol.patterns import check_pattern, matches
from pubsub.protocol.topic_settings import (
    EVER,
    NONE,
    OR,
    PARSERS,
    SETTINGS,
    TEXT_MAX,
    Amount,
    format_drop,
    format_keep,
    format_rate,
)

DEFAULTS_MAX: Final = 1_000
"""Most rules of a server."""

FORM: Final = "a pattern of topics and its settings, such as 'audit.> keep=90d drop=never'"


class TopicDefault(NamedTuple):
    """One rule.

    Attributes:
        match: the pattern of the topics.
        keep, drop, expire, rate, throughput: the amounts, in the order of SETTINGS.
    """

    match: str
    keep: Amount = NONE
    drop: Amount = EVER
    expire: Amount = EVER
    rate: Amount = EVER
    throughput: Amount = EVER

    def __str__(self) -> str:
        expire = f" expire={format_drop(self.expire)}" if self.expire != EVER else ""
        rate = f" rate={format_rate(self.rate)}" if self.rate != EVER else ""
        size = f" bytes={format_rate(self.throughput)}" if self.throughput != EVER else ""
        return f"{self.match} keep={format_keep(self.keep)} drop={format_drop(self.drop)}{expire}{rate}{size}"


BUILT_IN: Final = TopicDefault("")
"""The default of a topic that no rule matches."""


def parse_default(text: str) -> TopicDefault:
    """Parse a rule, such as `audit.> keep=90d`. A space may stand in `1000 records`.

    Raises:
        ValueError: it has another form; the text has the reason.
    """
    match, _, rest = text[: 3 * TEXT_MAX].strip().partition(" ")
    values: dict[str, str] = {}
    last = ""
    for word in rest.split():
        name, equals, value = word.partition("=")
        if equals:
            if name not in SETTINGS or name in values:
                raise ValueError(f"{FORM}; {name[:40]!r} is unknown or given twice")
            last, values[name] = name, value
        elif last:
            values[last] += f" {word}"
        else:
            raise ValueError(FORM)
    return make_default(match, values)


def make_default(match: object, values: dict[str, str]) -> TopicDefault:
    """Return the rule of a pattern and the texts of its settings.

    Raises:
        ValueError: a text is not allowed; the text has the reason.
    """
    if not values:
        raise ValueError(FORM)
    try:
        pattern = check_pattern(match)  # type: ignore[arg-type]
    except InvalidName as error:
        raise ValueError(f"{FORM}; {error}") from None
    if unknown := sorted(values.keys() - set(SETTINGS)):
        raise ValueError(f"{FORM}; {unknown[0][:40]!r} is no setting of a topic")
    amounts: dict[str, Amount] = {}
    for name, parse in PARSERS.items():
        text = values.get(name, "")
        if not isinstance(text, str):
            raise ValueError(f"{name} is a text")
        try:
            amounts[name] = parse(text)
        except ValueError as error:
            raise ValueError(f"{name} is {error}") from None
    if "tombstones" in values or amounts["keep"].latest:
        raise ValueError("keep=latest and tombstones are settings of single topics: pubsub topic set TOPIC keep=latest")
    del amounts["tombstones"]
    return TopicDefault(pattern, *amounts.values())


def default_for(topic: str, rules: Iterable[TopicDefault]) -> TopicDefault:
    """Return the first rule that matches a topic."""
    return next((rule for rule in rules if matches(rule.match, topic)), BUILT_IN)


def source(own: Iterable[str], match: str) -> str:
    """Return where the value of a setting is from: `topic`, `default PATTERN`, or `built-in`; several after a conflict.

    Args:
        own: the topic's own texts; "" where the default holds.
        match: the pattern of the server's default for the topic; "" if there is none.
    """
    default = f"default {match}" if match else "built-in"
    return OR.join(dict.fromkeys("topic" if text else default for text in own))


def digest(rules: Sequence[TopicDefault]) -> str:
    """Return 16 hex digits that are equal for equal rules; "" for none."""
    from hashlib import sha256  # noqa: PLC0415  a command of a client needs no digest

    return sha256("\n".join(map(str, rules)).encode("ascii")).hexdigest()[:16] if rules else ""
