"""The messages about patterns of topics: between a client and each proxy, and between proxies and servers.

The rules are those of docs/explanation/families.md.
"""

from dataclasses import dataclass
from typing import Annotated

from pubsub.protocol.fields import Body, Flag, Hex, Id, Number, Topic
from pubsub.protocol.pattern_table import PatternRow, split_patterns
from pubsub.protocol.rows import join_rows
from pubsub.protocol.wire import message

PatternRows = Annotated[tuple[PatternRow, ...] | None, Body("patterns", join_rows, split_patterns)]


@message("PATTERN", positional=2)
@dataclass(slots=True)
class Pattern:
    """Subscribe to a pattern of topics, or end that. A client sends it to every proxy; the proxy answers itself."""

    sender: Id
    pattern: Topic
    number: Number
    """From the client's allocator, the same at every proxy. The highest number counts."""
    stamp: Number = 0
    """Messages with an earlier timestamp are not wanted (microseconds since 1970). 0: the proxy's clock counts. The
    answer has the stamp in force."""
    end: Flag = 0
    """1: end the subscription."""


@message("MATCHING", positional=2)
@dataclass(slots=True)
class Matching:
    """Ask a proxy for the topics that match a pattern and that the sender may get. The body of the STATUS has them."""

    sender: Id
    pattern: Topic
    known: Annotated[Number, "crc"] = 0
    """The checksum of the last answer. The proxy waits until it can answer something else."""
    wait_ms: Annotated[Number, "wait"] = 0
    """Milliseconds that the proxy may wait; then the answer is `empty`."""


@message("PATTERNS", positional=2)
@dataclass(slots=True)
class Patterns:
    """Patterns that a proxy knows, for a server, and the server's answer with those that the proxy lacks."""

    sender: Id
    digest: Hex
    """Of the sender's whole table."""
    rows: PatternRows = None
