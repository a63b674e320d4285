"""Delayed messages in an export.

    TOPIC/delayed                  DUE COUNT CLIENT/STORE COUNTER, a line for each batch that waits, the next one first
    TOPIC/messages/delayed-N.K     message K, from 0, of line N, from 1; its key and headers have files of that name

DUE is in microseconds since 1970. A topic without delayed messages has no such file. A line of `order` with messages
that were delayed ends in `by=CLIENT/STORE,COUNTER`: the publisher that put them, and the counter of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX
from pubsub.errors import ConfigurationError
from pubsub.protocol.batch import decode_batch, encode_batch, origin_of
from pubsub.protocol.names import parse_number
from pubsub.protocol.records import check_publisher
from pubsub.server.offline.metadata import read_metadata, write_metadata
from pubsub.server.offline.words import lines_of, parsed
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import Batch
from pubsub.server.topic.topic import Topic

_FILE: Final = "delayed"
BY: Final = "by="
"""Begins the word of a line of `order` that names the publisher of delayed messages."""


def origin_word(batch: Batch, index: int) -> str:
    """Return the word that names the publisher of the delayed messages of a batch from `index` on; "" for others."""
    origin = None if batch.body is None else origin_of(batch.body)
    return "" if origin is None else f" {BY}{origin[0]},{origin[1] + index}"


def read_origin(path: Path, word: str) -> tuple[str, int]:
    """Return the publisher and the counter in the word of a line of `order`."""
    words = word.removeprefix(BY).split(",")
    return parsed(path, words, 2, lambda w: (check_publisher(w[0]), parse_number(w[1])))


def write_delayed(store: Store, topic: Topic, publishers: Sequence[str], folder: Path) -> int:
    """Write the delayed messages of a topic into its folder; return their number."""
    lines: list[str] = []
    count = 0
    for row in sorted(topic.delayed.rows.values()):
        body = store.reader.delayed(row)
        if body is None or crc32(body) != row.checksum:
            raise ConfigurationError(f"topic {topic.name} has a damaged delayed message; run pubsub server check")
        lines.append(f"{row.due} {row.records} {publishers[row.publisher]} {row.counter}\n")
        name = f"{_FILE}-{len(lines)}"
        for index, message in enumerate(decode_batch(body)):
            (folder / "messages" / f"{name}.{index}").write_bytes(message)
        write_metadata(body, 0, folder, name, range(row.records))
        count += row.records
    if lines:
        (folder / _FILE).write_text("".join(lines), encoding="ascii")
    return count


def read_delayed(folder: Path, topic: int, publisher: Callable[[str], int]) -> Iterator[c.DelayedKept]:
    """Yield the changes that keep the delayed messages in this folder.

    Args:
        topic: its number in the store.
        publisher: returns the number of a publisher.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    path = folder / _FILE
    for number, words in enumerate(lines_of(path) if path.exists() else (), 1):
        due, count, name, counter = parsed(
            path,
            words,
            4,
            lambda w: (parse_number(w[0]), parse_number(w[1]), check_publisher(w[2]), parse_number(w[3])),
        )
        if not 0 < count <= BATCH_RECORDS_MAX or not 0 < counter <= NUMBER_MAX - count or not due:
            raise ConfigurationError(f"{path} has a line that cannot be read: {' '.join(words)[:100]}")
        names = [f"{_FILE}-{number}.{index}" for index in range(count)]
        try:
            bodies = [(folder / "messages" / one).read_bytes() for one in names]
            body = encode_batch(bodies, *read_metadata(folder, names), due)
        except OSError as error:
            raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from None
        yield c.DelayedKept(topic, due, publisher(name), counter, count, crc32(body), body)
