"""The path of a process's key file, and how the key is made and replaced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from pubsub.base.paths import expanded
from pubsub.config.loading import ROLES, survey
from pubsub.config.locations import state_directory
from pubsub.errors import ConfigurationError
from pubsub.security.files import make_key_file, read_key_file, sync_directory
from pubsub.security.pairs import new_pair, pair_of

SECOND: Final = ".next"
"""Suffix of the second key's file name until the second key replaces the first."""


def key_path(role: str, name: str, given: str | None) -> Path:
    """Return the path of a process's key file: the given one, or the usual one in its state directory.

    Raises:
        ConfigurationError: no path is given, and the state directory is not known.
    """
    if given:
        return expanded(given)
    if "*" in name:
        raise ConfigurationError(
            f"{role} {name} is a pattern and has no state directory; give the path of its key file"
        )
    directory = _directory(role, name)
    if directory is None:
        raise ConfigurationError(
            f"the state directory of {role} {name} is not known; set PUBSUB_{role.upper()}_DIRECTORY, or "
            "`directory` in the configuration file, or give the path of its key file"
        )
    return directory / (f"{name}.key" if role == "client" else "key")


def make(path: Path) -> bytes:
    """Make a key and its file; return the public half.

    Raises:
        ConfigurationError: the file exists already, or cannot be made.
    """
    pair = new_pair()
    make_key_file(path, pair.secret)
    return pair.public


def rotate_key(path: Path) -> tuple[bytes, Path]:
    """Make a second key next to an existing one; return its public half and its file.

    Raises:
        ConfigurationError: there is no first key, or there is already a second one.
    """
    read_key_file(path)
    second = _second(path)
    if second.exists():
        raise ConfigurationError(f"key file {second} exists already; pubsub keys rotate --finish puts it in use")
    return make(second), second


def finish_rotation(path: Path) -> tuple[bytes, bytes]:
    """Replace the first key by the second; return the public halves of the old and the new key.

    Raises:
        ConfigurationError: there is no second key, or a key cannot be read.
    """
    second = _second(path)
    old, new = read_key_file(path), read_key_file(second)
    try:
        os.replace(second, path)
        sync_directory(path.parent)
    except OSError as error:
        raise ConfigurationError(f"key file {path}: {error.strerror}") from None
    return pair_of(old).public, pair_of(new).public


def _second(path: Path) -> Path:
    return path.with_name(path.name + SECOND)


def _directory(role: str, name: str) -> Path | None:
    """Return a role's state directory from the environment, the configuration file, or the default."""
    settings: Any = ROLES[role]
    said = {setting: value for setting, value, _ in survey(settings)}["directory"]
    if said is not None:
        return Path(str(said))
    return None if role == "server" else state_directory(role, name)
