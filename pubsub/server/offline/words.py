"""The files of an exported topic that are lines of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pubsub.errors import ConfigurationError, DecodeError
from pubsub.protocol.names import parse_number

_T = TypeVar("_T")


def lines_of(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(encoding="ascii") as file:
            for line in file:
                yield line.rstrip("\n").split(" ")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None


def parsed(path: Path, words: list[str], count: int, parse: Callable[[list[str]], _T]) -> _T:
    try:
        if len(words) != count:
            raise ValueError
        return parse(words)
    except (ValueError, DecodeError):
        raise ConfigurationError(f"{path} has words that cannot be read: {' '.join(words)[:100]}") from None


def number_in(path: Path, word: str) -> int:
    return parsed(path, [word], 1, lambda w: parse_number(w[0]))


def root_of(source: Path) -> Path:
    """Return the tree `server_ID` in a directory, or the directory itself."""
    if source.name.startswith("server_") and source.is_dir():
        return source
    found = sorted(path for path in source.glob("server_*") if path.is_dir())
    if len(found) != 1:
        raise ConfigurationError(f"{source} has {len(found)} folders named server_ID, and 1 is needed")
    return found[0]
