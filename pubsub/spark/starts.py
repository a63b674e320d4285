"""The begin of a source: an edge, a position or a timestamp."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pubsub.protocol import Position
from pubsub.protocol.names import Start, parse_position
from pubsub.spark.options import SourceOptions


def since(batches: Iterator[pa.RecordBatch], stamp: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a timestamp or a later one.

    Behind the place of the first such row there may be earlier ones: those of another server, after a merge.
    """
    for batch in batches:
        stamps = batch.column("stamp").cast(pa.int64()).to_numpy()
        yield batch if (stamps >= stamp).all() else batch.filter(pa.array(stamps >= stamp))


def start_of(options: SourceOptions, topic: str, default: str) -> Start:
    """Return the begin of a topic in the form of the protocol."""
    starting = options.starting
    text = starting if isinstance(starting, str) else starting.get(topic, default)
    if text[0] == "@":
        return int(text[1:])
    return text if text in {"earliest", "latest"} else parse_position(text) or text


def parse_position_of(text: str) -> Position | None:
    """Return the position of an option; None for an edge of an empty topic."""
    return None if text in {"earliest", "latest"} else parse_position(text)
