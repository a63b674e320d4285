"""The begin of a source: an edge, a position or a timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pubsub.protocol.names import Start, parse_position
from pubsub.spark.options import SourceOptions


def between(batches: Iterator[pa.RecordBatch], start: Start, stop: Start) -> Iterator[pa.RecordBatch]:
    """Yield the rows from the timestamp `start` on, and before the timestamp `stop`; other edges select nothing here.

    Behind the place of the first such row there may be earlier ones, and before the last one later ones: those of
    another server, after a merge.
    """
    for batch in batches:
        stamps = batch.column("stamp").cast(pa.int64()).to_numpy()
        inside = stamps >= (start if isinstance(start, int) else 0)
        if isinstance(stop, int):
            inside &= stamps < stop
        yield batch if inside.all() else batch.filter(pa.array(inside))


def start_of(options: SourceOptions, topic: str, default: str) -> Start:
    """Return the begin of a topic in the form of the protocol."""
    return _edge(options.starting, topic, default)


def stop_of(options: SourceOptions, topic: str) -> Start:
    """Return the end of a topic in the form of the protocol."""
    return _edge(options.ending, topic, "latest")


def _edge(edges: str | Mapping[str, str], topic: str, default: str) -> Start:
    text = edges if isinstance(edges, str) else edges.get(topic, default)
    if text[0] == "@":
        return int(text[1:])
    return text if text in {"earliest", "latest"} else parse_position(text) or text
