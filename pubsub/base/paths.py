"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path

from pubsub.errors import ConfigurationError


def expanded(given: Path | str) -> Path:
    """Return the path with a leading `~` or `~user` replaced by that home directory.

    Raises:
        ConfigurationError: there is no such user, or the home directory is unknown.
    """
    try:
        return (given if isinstance(given, Path) else Path(given)).expanduser()
    except RuntimeError:
        raise ConfigurationError(f"{given}: the home directory at its beginning is unknown") from None
