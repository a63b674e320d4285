"""Bearer tokens (RFC 6750; docs/http.md, *Tokens*): each belongs to a user; a gateway's user also has rights.

    # name    token's SHA-256      rights
    alice     th_…                 put=orders/*  get=orders/*
    ops       th_…                 status  operate

The file holds a digest of each token, not the token itself. Rights are written as in the file `authorized`. In a
cluster with keys, `KEYS/alice.key` is the user's key, and the user needs the rights of both that key and this line.
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
from pubsub.protocol.patterns import ONE, REST, is_pattern
from pubsub.security.patterns import EVERYTHING, Pattern, parse_pattern

TOKENS_MAX: Final = 10_000
"""Tokens of one server."""

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a token file."""

Names = tuple[re.Pattern[str], str]
"""Pattern of a valid name, and its description."""

USERS: Final[Names] = re.compile(r"[A-Za-z0-9_-]{1,24}"), "1-24 of A-Z a-z 0-9 _ -"
"""Names of a gateway's users, which begin client IDs."""

OWNERS: Final[Names] = re.compile(r"[A-Za-z0-9._-]{1,64}"), "1-64 of A-Z a-z 0-9 . _ -"
"""Names of the senders of reliable requests."""

_TOPIC: Final = re.compile(r"[!-~]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_DIGEST: Final = re.compile(r"th_([0-9a-f]{64})")
_FLAGS: Final = ("status", "operate")

_log: Final = logging.getLogger("pubsub.web")


@dataclass(frozen=True)
class User:
    """The sender of a request, with its rights.

    Attributes:
        name: also the beginning of its clients' IDs.
        put, get: topics that it may put to, and receive.
        status: it may read the cluster's report; operate: it may also change other users' things.
    """

    name: str
    put: tuple[Pattern, ...] = ()
    get: tuple[Pattern, ...] = ()
    status: bool = False
    operate: bool = False

    def may_put(self, topic: str) -> bool:
        return any(pattern.matches(topic) for pattern in self.put)

    def may_get(self, topic: str) -> bool:
        """Return whether the user may receive a topic, or every topic that a pattern of topics matches."""
        return any(pattern.matches(_any_of(topic)) for pattern in self.get)


ANYBODY: Final = User("http", (EVERYTHING,), (EVERYTHING,), status=True, operate=True)
"""The user of every request if there are no tokens."""


@dataclass(frozen=True)
class Users:
    """All users of a server.

    Attributes:
        by_digest: SHA-256 of a token -> its user. None: there are no tokens, and every request has all rights.
    """

    by_digest: Mapping[str, User] | None = field(default=None)

    def find(self, token: str | None) -> User | None:
        if self.by_digest is None:
            return ANYBODY
        if token is None:
            return None
        return self.by_digest.get(digest(token))


def _any_of(topic: str) -> str:
    """Return a topic; of a pattern, with a character that no right names in the place of each `*` and `>`.

    So only a star of a right covers it: a right that matches this text matches all topics of the pattern.
    """
    if not is_pattern(topic):
        return topic
    return ".".join("\0" if token in (ONE, REST) else token for token in topic.split("."))


def digest(token: str) -> str:
    """Return the stored form of a token. Tokens are long and random, so it reveals nothing about them."""
    return sha256(token.encode()).hexdigest()


def new_token() -> str:
    """Return a new bearer token of 32 random bytes."""
    return "pt_" + secrets.token_urlsafe(32)


def bearer(authorization: str) -> str | None:
    """Return the token of a header `Authorization`, None if it holds none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def owners(tokens: Mapping[str, str]) -> Users:
    """Return users without rights.

    Args:
        tokens: name -> token.

    Raises:
        ConfigurationError: a name or token is malformed, or there are too many.
    """
    found: dict[str, User] = {}
    for name, token in tokens.items():
        try:
            _add(found, *_plain(name, token, OWNERS))
        except ValueError as error:
            raise ConfigurationError(f"the token of {name[:60]!r}: {error}") from None
    return Users(found)


def read_users(path: Path | str, names: Names = USERS, *, plain: bool = False) -> Users:
    """Read a token file.

    Args:
        path: of the file.
        names: allowed names.
        plain: also read lines of NAME TOKEN, with a warning.

    Raises:
        ConfigurationError: the file or one of its lines cannot be used; then none of its users counts.
    """
    text, mode = _read(Path(path))
    lines = text.splitlines()
    users = parse_users(lines, str(path), names, plain=plain)
    if plain and any(_DIGEST.fullmatch(words[1]) is None for words in map(_words, lines) if words):
        _log.warning(
            "%s: lines of NAME TOKEN are read for one more release only; replace them by NAME th_SHA256, as"
            " pubsub gateway token NAME prints it",
            path,
        )
        return users
    if mode & 0o022:
        raise ConfigurationError(f"{path}: other users may write this file; run chmod go-w {path}")
    if text and not text.endswith("\n"):
        raise ConfigurationError(f"{path}: the last line has no newline, so the file may be half written; add one")
    return users


def read_token(path: Path | str) -> str:
    """Return the only token of a file, for a sender.

    Raises:
        ConfigurationError: the file cannot be read, or does not hold exactly one token.
    """
    words = [word for line in _read(Path(path))[0].splitlines() for word in _words(line)]
    if len(words) != 1 or not _TOKEN.fullmatch(words[0]):
        raise ConfigurationError(f"{path} does not hold exactly one token; write one token and nothing else")
    return words[0]


def _read(path: Path) -> tuple[str, int]:
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
    """Parse the lines of a token file, as `read_users`.

    Raises:
        ConfigurationError: a line is malformed.
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
        raise ValueError("another line has the same token; give each name a token of its own")
    if len(found) == TOKENS_MAX:
        raise ValueError(f"there are more than TOKENS_MAX = {TOKENS_MAX:,} tokens")
    found[key] = user


def _check_name(name: str, names: Names) -> None:
    pattern, text = names
    if pattern.fullmatch(name) is None:
        raise ValueError(f"a user's name must be {text}")


def _plain(name: str, token: str, names: Names) -> tuple[str, User]:
    _check_name(name, names)
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("a token must be 16 to 512 of A-Z a-z 0-9 . _ ~ + / -")
    return digest(token), User(name)


def _parse(words: list[str], names: Names, plain: bool) -> tuple[str, User]:
    if len(words) < 2:
        raise ValueError("the line is incomplete; write NAME th_SHA256 RIGHTS…")
    name, written, rights = words[0], words[1], words[2:]
    match = _DIGEST.fullmatch(written)
    if match is None and plain and not rights:
        return _plain(name, written, names)
    _check_name(name, names)
    if match is None:
        raise ValueError("after the name write th_ and 64 hex digits, as `pubsub gateway token` prints them")
    topics: dict[str, tuple[Pattern, ...]] = {}
    flags: dict[str, bool] = {}
    for right in rights:
        what, equals, patterns = right.partition("=")
        if what in {"put", "get"} and equals:
            topics[what] = tuple(parse_pattern(text, _TOPIC, TOPIC_LENGTH_MAX, "topic") for text in patterns.split(","))
        elif right in _FLAGS:
            flags[right] = True
        else:
            raise ValueError(f"{right} is not a right; use put=TOPICS get=TOPICS status operate")
    operate = flags.get("operate", False)
    return match[1], User(
        name, topics.get("put", ()), topics.get("get", ()), flags.get("status", False) or operate, operate
    )
