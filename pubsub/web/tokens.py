"""Bearer tokens: each is a user, of a gateway with rights of its own (RFC 6750; docs/http.md, *Tokens*).

    # name    token's SHA-256      rights
    alice     th_…                 put=orders/*  get=orders/*
    ops       th_…                 status  operate

The file holds no token, only what a token is recognised by, and has the rights of the file `authorized`. Where the
cluster has keys, `KEYS/alice.key` is the user's, and what the cluster allows that key counts beside what stands here.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from pubsub.base.limits import TOPIC_LENGTH_MAX
from pubsub.base.text import without_mark
from pubsub.errors import ConfigurationError
from pubsub.security.patterns import EVERYTHING, Pattern, parse_pattern

TOKENS_MAX: Final = 10_000
"""Tokens that a server knows."""

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a file of tokens."""

Names = tuple[re.Pattern[str], str]
"""What a name is, and the same in words."""

USERS: Final[Names] = re.compile(r"[A-Za-z0-9_-]{1,24}"), "1-24 of A-Z a-z 0-9 _ -"
"""Of a gateway's users: the beginnings of client IDs."""

OWNERS: Final[Names] = re.compile(r"[A-Za-z0-9._-]{1,64}"), "1-64 of A-Z a-z 0-9 . _ -"
"""Of those that send reliable requests."""

_TOPIC: Final = re.compile(r"[!-~]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_DIGEST: Final = re.compile(r"th_([0-9a-f]{64})")
_FLAGS: Final = ("status", "operate")

_log: Final = logging.getLogger("pubsub.web")


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


def bearer(authorization: str) -> str | None:
    """The token that a header `Authorization` holds; None: it holds none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def owners(tokens: Mapping[str, str]) -> Users:
    """Who has which token.

    Args:
        tokens: name -> token.

    Raises:
        ConfigurationError: a name or a token cannot be, or they are too many.
    """
    found: dict[str, User] = {}
    for name, token in tokens.items():
        try:
            _add(found, *_plain(name, token, OWNERS))
        except ValueError as error:
            raise ConfigurationError(f"the token of {name[:60]!r}: {error}") from None
    return Users(found)


def read_users(path: Path | str, names: Names = USERS, *, plain: bool = False) -> Users:
    """The users of a file of tokens.

    Args:
        path: of the file.
        names: of its users.
        plain: lines of NAME TOKEN are taken, too, with a warning.

    Raises:
        ConfigurationError: the file cannot be used; it is taken as a whole or not at all.
    """
    text, mode = _read(Path(path))
    lines = text.splitlines()
    users = parse_users(lines, str(path), names, plain=plain)
    if plain and any(_DIGEST.fullmatch(words[1]) is None for words in map(_words, lines) if words):
        _log.warning(
            "%s: lines of NAME TOKEN are read for one more release; write NAME th_ and the token's SHA-256, as pubsub"
            " gateway token NAME prints it",
            path,
        )
        return users
    if mode & 0o022:
        raise ConfigurationError(f"{path}: others may write it: chmod go-w {path}")
    if text and not text.endswith("\n"):
        raise ConfigurationError(f"{path}: its last line has no end, so it may be half written")
    return users


def read_token(path: Path | str) -> str:
    """The one token that a file holds, for a sender.

    Raises:
        ConfigurationError: it cannot be read, or holds none, or several.
    """
    words = [word for line in _read(Path(path))[0].splitlines() for word in _words(line)]
    if len(words) != 1 or not _TOKEN.fullmatch(words[0]):
        raise ConfigurationError(f"{path} is to hold one token and nothing else")
    return words[0]


def _read(path: Path) -> tuple[str, int]:
    """A file's text, and its mode."""
    try:
        with path.open("rb") as file:
            contents, mode = file.read(FILE_BYTES_MAX + 1), path.stat().st_mode
        if len(contents) > FILE_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than FILE_BYTES_MAX = {FILE_BYTES_MAX:,} bytes")
        return without_mark(contents).decode("utf-8", "replace"), mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", error)
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None


def parse_users(lines: Iterable[str], path: str, names: Names = USERS, *, plain: bool = False) -> Users:
    """The users that a file's lines name; as `read_users`.

    Raises:
        ConfigurationError: a line is none.
    """
    found: dict[str, User] = {}
    for number, line in enumerate(lines, 1):
        words = _words(line)
        try:
            if words:
                _add(found, *_parse(words, names, plain))
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
    return Users(found)


def _words(line: str) -> list[str]:
    return line.partition("#")[0].split()


def _add(found: dict[str, User], key: str, user: User) -> None:
    if key in found:
        raise ValueError("this token is there already")
    if len(found) == TOKENS_MAX:
        raise ValueError(f"there are more than TOKENS_MAX = {TOKENS_MAX:,} tokens")
    found[key] = user


def _check_name(name: str, names: Names) -> None:
    pattern, text = names
    if pattern.fullmatch(name) is None:
        raise ValueError(f"a user's name is {text}")


def _plain(name: str, token: str, names: Names) -> tuple[str, User]:
    _check_name(name, names)
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("a token is 16 to 512 of A-Z a-z 0-9 . _ ~ + / -")
    return digest(token), User(name)


def _parse(words: list[str], names: Names, plain: bool) -> tuple[str, User]:
    if len(words) < 2:
        raise ValueError("a line is NAME th_DIGEST RIGHTS…")
    name, written, rights = words[0], words[1], words[2:]
    match = _DIGEST.fullmatch(written)
    if match is None and plain and not rights:
        return _plain(name, written, names)
    _check_name(name, names)
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
