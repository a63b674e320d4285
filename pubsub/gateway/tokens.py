"""Bearer tokens: each is a user with rights of its own (RFC 6750; docs/http.md, *Tokens*).

    # user    token's SHA-256      rights
    alice     th_…                 put=orders/*  get=orders/*
    ops       th_…                 status  operate

The file holds no token, only what a token is recognised by, and has the rights of the file `authorized`. Where the
cluster has keys, `KEYS/alice.key` is the user's, and what the cluster allows that key counts beside what stands here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from pubsub.base.limits import TOPIC_LENGTH_MAX
from pubsub.errors import ConfigurationError
from pubsub.security.patterns import EVERYTHING, Pattern, parse_pattern

TOKENS_MAX: Final = 10_000
"""Lines of the file."""

_TOPIC: Final = re.compile(r"[!-~]*")
_USER: Final = re.compile(r"[A-Za-z0-9_-]{1,24}")
_DIGEST: Final = re.compile(r"th_([0-9a-f]{64})")
_FLAGS: Final = ("status", "operate")


@dataclass(frozen=True)
class User:
    """Who a request comes from, and what it may do.

    Attributes:
        name: also the beginning of its clients' IDs.
        put, get: topics that it may put to, and receive.
        status: it may see the cluster's report; operate: it may also change what is not its own.
    """

    name: str
    put: tuple[Pattern, ...] = ()
    get: tuple[Pattern, ...] = ()
    status: bool = False
    operate: bool = False

    def may_put(self, topic: str) -> bool:
        """Whether it may put to a topic."""
        return any(pattern.matches(topic) for pattern in self.put)

    def may_get(self, topic: str) -> bool:
        """Whether it may receive a topic."""
        return any(pattern.matches(topic) for pattern in self.get)


ANYBODY: Final = User("http", (EVERYTHING,), (EVERYTHING,), status=True, operate=True)
"""Who everybody is where there are no tokens."""


@dataclass(frozen=True)
class Users:
    """Who may do what.

    Attributes:
        by_digest: SHA-256 of a token -> its user. None: there are no tokens, and everybody may do everything.
    """

    by_digest: Mapping[str, User] | None = field(default=None)

    def find(self, token: str | None) -> User | None:
        """Who has a token; None: nobody."""
        if self.by_digest is None:
            return ANYBODY
        if token is None:
            return None
        return self.by_digest.get(digest(token))


def digest(token: str) -> str:
    """What a token is recognised by; tokens are long and random, so that it tells nothing about them."""
    return sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A bearer token: 32 random bytes."""
    return "pt_" + secrets.token_urlsafe(32)


def parse_users(lines: Iterable[str], path: str) -> Users:
    """The file's content.

    Args:
        lines: of the file.
        path: of the file, for errors.

    Raises:
        ConfigurationError: a line is none; it is taken as a whole or not at all.
    """
    found: dict[str, User] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            key, user = _parse(words)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
        if key in found:
            raise ConfigurationError(f"{path}, line {number}: this token stands in the file already")
        found[key] = user
        if len(found) > TOKENS_MAX:
            raise ConfigurationError(f"{path}: more than {TOKENS_MAX:,} tokens")
    return Users(found)


def _parse(words: list[str]) -> tuple[str, User]:
    if len(words) < 2:
        raise ValueError("a line is USER th_DIGEST RIGHTS…")
    name, written, rights = words[0], words[1], words[2:]
    if _USER.fullmatch(name) is None:
        raise ValueError("a user's name is 1-24 of A-Z a-z 0-9 _ -")
    match = _DIGEST.fullmatch(written)
    if match is None:
        raise ValueError("behind the name stands th_ and 64 hex digits, as `pubsub gateway token` prints them")
    topics: dict[str, tuple[Pattern, ...]] = {}
    flags: dict[str, bool] = {}
    for right in rights:
        what, equals, patterns = right.partition("=")
        if what in {"put", "get"} and equals:
            topics[what] = tuple(parse_pattern(text, _TOPIC, TOPIC_LENGTH_MAX, "topic") for text in patterns.split(","))
        elif right in _FLAGS:
            flags[right] = True
        else:
            raise ValueError(f"{right} is no right; there are put=TOPICS get=TOPICS status operate")
    operate = flags.get("operate", False)
    return match[1], User(
        name, topics.get("put", ()), topics.get("get", ()), flags.get("status", False) or operate, operate
    )
