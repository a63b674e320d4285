"""Checks the number of files that a process may still open: without a file libzmq ends the process with a core dump."""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

from pubsub.errors import ConfigurationError

FILES_FREE_MIN: Final = 24
"""Files that must be available to create a ZeroMQ context, a socket and its monitor, which take 12 to 16."""

FILES_WANTED: Final = 1_024
"""The limit that the error's text suggests."""


def too_few(left: int) -> ConfigurationError:
    """Return the error for a process with too few files left."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ConfigurationError(
        f"this process may open {allowed:,} files; {left} are left, and it needs {FILES_FREE_MIN};"
        f" allow more: ulimit -n {FILES_WANTED}"
    )


def check_files() -> None:
    """Check that ZeroMQ can open the files that it needs.

    Raises:
        ConfigurationError: fewer than FILES_FREE_MIN are left; the text tells how to allow more.
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
