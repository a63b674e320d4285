"""Where the key of a process lies, and how it is made and replaced by a second one."""

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
"""What the name of a second key ends with, until it takes the place of the first."""


def key_path(role: str, name: str, given: str | None) -> Path:
    """Where a process has its key: where somebody said, or beside its state.

    Raises:
        ConfigurationError: nobody said, and where its state is cannot be known.
    """
    if given:
        return expanded(given)
    if "*" in name:
        raise ConfigurationError(
            f"{role} {name} is a pattern and has no directory; say where its key is by a file name"
        )
    directory = _directory(role, name)
    if directory is None:
        raise ConfigurationError(
            f"where {role} {name} has its data is not set, by PUBSUB_{role.upper()}_DIRECTORY or in the configuration "
            "file; say where its key is by a file name"
        )
    return directory / (f"{name}.key" if role == "client" else "key")


def make(path: Path) -> bytes:
    """Makes a key and its file; the public half.

    Raises:
        ConfigurationError: there is one already, or it cannot be made.
    """
    pair = new_pair()
    make_key_file(path, pair.secret)
    return pair.public


def rotate_key(path: Path) -> tuple[bytes, Path]:
    """Makes a second key beside one that is there: its public half, and its file.

    Raises:
        ConfigurationError: there is no first key, or a second one already.
    """
    read_key_file(path)
    second = _second(path)
    if second.exists():
        raise ConfigurationError(f"key file {second} is there already: pubsub keys rotate --finish puts it in use")
    return make(second), second


def finish_rotation(path: Path) -> tuple[bytes, bytes]:
    """Puts the second key in the place of the first: the public halves of the old and of the new one.

    Raises:
        ConfigurationError: there is no second key, or one of them cannot be read.
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
    """The directory of a role's state: as the environment or the configuration file says, else the usual one."""
    settings: Any = ROLES[role]
    said = {setting: value for setting, value, _ in survey(settings)}["directory"]
    if said is not None:
        return Path(str(said))
    return None if role == "server" else state_directory(role, name)
