"""Ports for processes that are killed and restarted: no other process may take one while its process is dead."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

FIRST, LAST, BLOCK = 20_000, 32_000, 50
"""Below those that outgoing connections get; in blocks, each of one process of the tests at a time."""


def _blocks() -> Iterator[int]:
    """Numbers of ports, each once, of blocks that are this process's until it ends."""
    claims = Path(tempfile.gettempdir()) / f"pubsub-test-ports-{os.getuid()}"
    claims.mkdir(exist_ok=True)
    held: list[IO[str]] = []
    for first in range(FIRST, LAST, BLOCK):
        claim = (claims / str(first)).open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            claim.close()
            continue
        held.append(claim)
        yield from range(first, first + BLOCK)


_ports = _blocks()


def free_port() -> int:
    """A port that is free, and that no other process of the tests is given while this one runs."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port from {FIRST} to {LAST} is free")
