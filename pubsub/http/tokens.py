"""Bearer tokens: who asks, by what is in the header Authorization (RFC 6750)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from pubsub.base.text import without_mark
from pubsub.errors import ConfigurationError
from pubsub.http.core.limits import TOKENS_MAX

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a file of tokens."""


class Tokens:
    """Which token is whose. The tokens themselves are not kept, only their hashes.

    Args:
        tokens: name -> token.

    Raises:
        ConfigurationError: a name or a token cannot be, or they are too many.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        if len(tokens) > TOKENS_MAX:
            raise ConfigurationError(f"{len(tokens):,} tokens, above the limit TOKENS_MAX = {TOKENS_MAX:,}")
        self._names: dict[bytes, str] = {}
        for name, token in tokens.items():
            if not _NAME.fullmatch(name):
                raise ConfigurationError(f"{name[:60]!r} names nobody: 1-64 of A-Z a-z 0-9 . _ -")
            if not _TOKEN.fullmatch(token):
                raise ConfigurationError(f"the token of {name} is not 16 to 512 of A-Z a-z 0-9 . _ ~ + / -")
            if (found := self._names.setdefault(_hash(token), name)) != name:
                raise ConfigurationError(f"{name} and {found} have the same token")

    def owner(self, authorization: str) -> str | None:
        """Whose token a header `Authorization` holds; None: nobody's."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        # Looked up is a hash, so how long that takes tells nothing about a token.
        return self._names.get(_hash(token.strip()))


def _hash(token: str) -> bytes:
    return sha256(token.encode()).digest()


def read_tokens(path: Path | str) -> Tokens:
    """The tokens of a file: a name and a token a line, `#` begins a comment.

    Raises:
        ConfigurationError: it cannot be read, or a line cannot be used.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(path), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] in found:
            raise ConfigurationError(f"{path}, line {number}: a line is NAME TOKEN, each name once")
        found[words[0]] = words[1]
    if not found:
        raise ConfigurationError(f"{path} has no token: a line is NAME TOKEN")
    return Tokens(found)


def read_token(path: Path | str) -> str:
    """The one token that a file holds, for a sender.

    Raises:
        ConfigurationError: it cannot be read, or holds none, or several.
    """
    words = [word for line in _lines(path) for word in line.partition("#")[0].split()]
    if len(words) != 1 or not _TOKEN.fullmatch(words[0]):
        raise ConfigurationError(f"{path} is to hold one token and nothing else")
    return words[0]


def _lines(path: Path | str) -> list[str]:
    try:
        with Path(path).open("rb") as file:
            contents = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    if len(contents) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is larger than FILE_BYTES_MAX = {FILE_BYTES_MAX:,} bytes")
    try:
        return without_mark(contents).decode("utf-8", "replace").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.reason}") from None
