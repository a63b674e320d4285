"""Locate the state files of clients. A command for a client without state creates none by mistake."""

from __future__ import annotations

from pathlib import Path

from pubsub.config.locations import state_directory
from pubsub.errors import NoSuchClient
from pubsub.protocol import check_id

_SUFFIX = ".db"
_KEY_SUFFIX = ".key"


def state_path(name: str, directory: Path | None) -> Path:
    """Return the state file of a client.

    Args:
        name: the client ID.
        directory: the directory in its settings; None: under the user's data directory, by client ID.
    """
    return (state_directory("client", name) if directory is None else directory) / f"{name}{_SUFFIX}"


def key_path(name: str, directory: Path | None) -> Path:
    """Return the default key file of a client; arguments as for `state_path`."""
    return state_path(name, directory).with_name(name + _KEY_SUFFIX)


def check_exists(name: str, directory: Path | None) -> None:
    """Check that a client has a state file, if its directory can be read; arguments as for `state_path`.

    Raises:
        InvalidName: the name is not a client ID.
        NoSuchClient: there is no such file.
    """
    path = state_path(check_id("client ID", name), directory)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        shared = path.parent if directory is not None else path.parent.parent
        pattern = f"*{_SUFFIX}" if directory is not None else f"*/*{_SUFFIX}"
        raise NoSuchClient(name, str(shared), sorted(found.stem for found in shared.glob(pattern))) from None
    except OSError:
        return  # The opening of the file reports the cause.
