"""Limits of a process's metrics port: the number, size and time that a peer can use (docs/limits.md)."""

from __future__ import annotations

from typing import Final

CONNECTIONS_MAX: Final = 64
"""Connections at the same time. A further one closes the oldest of those that have sent no request, or the oldest of
all.
"""

BACKLOG: Final = 16
"""Connections that wait to be accepted. All of them are accepted before open connections get their turn."""

HEAD_BYTES_MAX: Final = 8 * 1024
"""Bytes of a request's line and headers; beyond it 431."""

REQUEST_SECONDS: Final = 5.0
"""Time from the start of a connection until its request is complete; then it is closed."""

WRITE_SECONDS: Final = 10.0
"""Time for a peer to read its answer; then the connection is closed."""

ANSWER_SECONDS: Final = 5.0
"""Longest wait for the loop. A loop without a turn in this time counts as dead, and the answer is 503."""

SNAPSHOT_SECONDS: Final = 0.5
"""Lifetime of a snapshot: however many scrapers ask, the loop makes at most two a second."""
