"""Where clients' states are, and which there are: a command for a client that is not there makes none by mistake."""

from __future__ import annotations

from pathlib import Path

from pubsub.config.locations import state_directory
from pubsub.errors import NoSuchClient
from pubsub.protocol import check_id

_SUFFIX = ".db"
_KEY_SUFFIX = ".key"


def state_path(name: str, directory: Path | None) -> Path:
    """The file of a client's state.

    Args:
        name: the client ID.
        directory: what its settings say; None: under the user's data directory, by client ID.
    """
    return (state_directory("client", name) if directory is None else directory) / f"{name}{_SUFFIX}"


def key_path(name: str, directory: Path | None) -> Path:
    """The file of a client's key, where its settings name no other; arguments as for `state_path`."""
    return state_path(name, directory).with_name(name + _KEY_SUFFIX)


def check_exists(name: str, directory: Path | None) -> None:
    """See that a client is there, as far as its directory can be read; arguments as for `state_path`.

    Raises:
        InvalidName: that is no client ID.
        NoSuchClient: it is not there.
    """
    path = state_path(check_id("client ID", name), directory)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        shared = path.parent if directory is not None else path.parent.parent
        pattern = f"*{_SUFFIX}" if directory is not None else f"*/*{_SUFFIX}"
        raise NoSuchClient(name, str(shared), sorted(found.stem for found in shared.glob(pattern))) from None
    except OSError:
        return  # Whoever opens it says why that is not possible.
