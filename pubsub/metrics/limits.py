"""Every named limit of a process's metrics: what a peer can make it hold, and for how long (docs/limits.md)."""

from __future__ import annotations

from typing import Final

CONNECTIONS_MAX: Final = 64
"""Connections at the same time; for one more that is closed which has owed its request for longest, else the oldest."""

BACKLOG: Final = 16
"""Connections that wait to be accepted, and that are accepted before those that are open have their turn."""

HEAD_BYTES_MAX: Final = 8 * 1024
"""Bytes of a request's line and headers; beyond it 431."""

REQUEST_SECONDS: Final = 5.0
"""From a connection's beginning until its request is whole; then it is closed."""

WRITE_SECONDS: Final = 10.0
"""How long an answer may take to be read; then the connection is closed."""

ANSWER_SECONDS: Final = 5.0
"""Patience with the loop; one that does not turn within this is not alive, and the answer is 503."""

SNAPSHOT_SECONDS: Final = 0.5
"""A snapshot is good for so long: however many ask, the loop makes two a second at most."""
