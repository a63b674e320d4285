"""How many more files a process may open: libzmq ends the process, with a core dump, where it gets none for itself."""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

from pubsub.errors import ConfigurationError

FILES_FREE_MIN: Final = 24
"""Files that must be left where a ZeroMQ context, a socket and what watches it are made: they take 12 to 16."""

FILES_WANTED: Final = 1_024
"""What to allow a process that has too few, for the error's text."""


def too_few(left: int) -> ConfigurationError:
    """What to say where so few files are left to open."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ConfigurationError(
        f"this process may have {allowed:,} files open, {left} more than it has, and needs {FILES_FREE_MIN};"
        f" allow more: ulimit -n {FILES_WANTED}"
    )


def check_files() -> None:
    """See that ZeroMQ gets the files that it needs.

    Raises:
        ConfigurationError: fewer than FILES_FREE_MIN are left; how to allow more.
    """
    probes: list[int] = []
    try:
        probes.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        while len(probes) < FILES_FREE_MIN:
            probes.append(os.dup(probes[0]))
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise ConfigurationError(f"{os.devnull} cannot be opened: {error.strerror}") from None
        raise too_few(len(probes)) from None
    finally:
        for probe in probes:
            os.close(probe)
