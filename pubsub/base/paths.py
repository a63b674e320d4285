"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from pubsub.errors import ConfigurationError


def expanded(given: Path | str) -> Path:
    """The path, with the directory that `~` or `~user` stands for in its beginning.

    Args:
        given: a path.

    Raises:
        ConfigurationError: there is no such user, or nobody knows where the directory is.
    """
    try:
        return (given if isinstance(given, Path) else Path(given)).expanduser()
    except RuntimeError:
        raise ConfigurationError(f"{given}: the home directory that it begins with is not known") from None
