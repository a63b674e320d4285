"""The Parquet files that a task adds to a Delta table, one for each partition of its rows, and their statistics.

A file's name has the query, the batch and a random part. So a file that no commit lists shows to which batch it belongs
(`tidying`). A value in a path is only for people: readers take a partition's values from the table's log.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pubsub.client.files import sync
from pubsub.errors import StorageError

BUFFER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Arrow bytes of a task that wait for a row group; beyond it, the largest partition is written."""

OPEN_FILES_MAX: Final = 64
"""Files that a task has open; beyond it, the least recently used one is completed."""

STATS_TEXT_MAX: Final = 64
"""Characters of the longest text that a file's statistics have; a column with longer ones has no minimum or maximum."""

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
NAME: Final = re.compile(r"part-(?P<query>[0-9a-f]{16})-(?P<batch>\d{10,})-\d{5,}-[0-9a-f]{32}\.parquet")
"""Name of a file: query, batch, partition of Spark, random part."""

_UNSAFE: Final = re.compile(r"[\x00-\x7f]")
_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]")


def file_name(query: str, batch: int, partition: int) -> str:
    """Return a new name that no other attempt has.

    Args:
        query: 16 hex digits.
        partition: number of Spark's task within the batch.
    """
    return f"part-{query}-{batch:010}-{partition:05}-{uuid.uuid4().hex}.parquet"


@dataclass
class DataFile:
    """A complete file of a table.

    Attributes:
        path: below the table's directory.
        size: bytes.
        partition: values by column, as text.
        stats: the statistics in the form of Delta's log.
        modified: milliseconds since 1970.
    """

    path: str
    size: int
    partition: dict[str, str | None]
    stats: str
    modified: int
    rows: int


@dataclass
class _Open:
    path: str
    partition: dict[str, str | None]
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.waiting_bytes = [], 0


class FileWriter:
    """Writes the rows of one task.

    Args:
        directory: of the table.
        schema: of the rows, with the partition columns.
        partition_by: their names.
        query, batch, partition: see `file_name`.
    """

    def __init__(
        self, directory: str, schema: pa.Schema, partition_by: Sequence[str], query: str, batch: int, partition: int
    ) -> None:
        self._directory, self._schema, self._by = Path(directory), schema, list(partition_by)
        self._names = query, batch, partition
        kept = [column for column in schema if column.name not in self._by]
        self._kept = pa.schema(kept)
        self._open: dict[tuple[str | None, ...], _Open] = {}
        self._done: list[DataFile] = []
        self._made: list[Path] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageError: a file cannot be written.
        """
        rows = _as(rows, self._schema)
        try:
            for values, part in self._split(rows):
                self._add(values, part.select(self._kept.names))
        except OSError as error:
            raise StorageError(str(self._directory), error.strerror or str(error)) from None

    def _split(self, rows: pa.RecordBatch) -> list[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        if not rows.num_rows:
            return []
        if not self._by:
            return [((), rows)]
        keys = pa.Table.from_batches([rows]).select(self._by).group_by(self._by).aggregate([]).to_pylist()
        if len(keys) == 1:
            return [(tuple(text_of(keys[0][name]) for name in self._by), rows)]
        found = []
        for key in keys:
            its: Any = None
            for name in self._by:
                column, value = rows.column(name), key[name]
                same = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
                its = same if its is None else pc.and_(its, same)
            found.append((tuple(text_of(key[name]) for name in self._by), rows.filter(its)))
        return found

    def _add(self, values: tuple[str | None, ...], rows: pa.RecordBatch) -> None:
        held = self._open.pop(values, None) or self._begin(values)
        self._open[values] = held  # The last one is the one used last.
        held.waiting.append(rows)
        held.waiting_bytes += rows.nbytes
        while sum(one.waiting_bytes for one in self._open.values()) > BUFFER_BYTES_MAX:
            max(self._open.values(), key=lambda one: one.waiting_bytes).flush()
        if len(self._open) > OPEN_FILES_MAX:
            self._complete(next(iter(self._open)))

    def _begin(self, values: tuple[str | None, ...]) -> _Open:
        partition = dict(zip(self._by, values, strict=True))
        folder = "/".join(f"{_escaped(name)}={_folder(value)}" for name, value in partition.items())
        path = f"{folder}/{file_name(*self._names)}" if folder else file_name(*self._names)
        place = self._directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self._made.append(place)
        return _Open(path, partition, pq.ParquetWriter(place, self._kept, compression="zstd"))

    def _complete(self, values: tuple[str | None, ...]) -> None:
        held = self._open.pop(values)
        held.flush()
        held.writer.close()
        place = self._directory / held.path
        sync(place)  # Otherwise a power cut could leave a listed file without its content.
        sync(place.parent)
        about, metadata = place.stat(), pq.read_metadata(place)
        facts, modified = json.dumps(statistics(metadata)), about.st_mtime_ns // 1_000_000
        self._done.append(DataFile(held.path, about.st_size, held.partition, facts, modified, metadata.num_rows))

    def finish(self) -> list[DataFile]:
        """Complete the files, and return what the log needs of them.

        Raises:
            StorageError: a file cannot be written.
        """
        try:
            for values in list(self._open):
                self._complete(values)
        except OSError as error:
            raise StorageError(str(self._directory), error.strerror or str(error)) from None
        return self._done

    def abandon(self) -> None:
        """Remove the files, which no commit will list. Those of a killed task stay until the table is tidied."""
        for place in self._made:
            place.unlink(missing_ok=True)


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return a file's statistics as Delta's log has them: rows, and for plain columns minimum, maximum and nulls.

    Readers skip files by them. So a column has a value only where it is certain: no text that a library may have cut,
    no floating-point number (NaN is in no minimum), and a maximal time is rounded up to the log's milliseconds.
    """
    nulls: dict[str, int] = {}
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for index in range(metadata.num_columns if metadata.num_row_groups else 0):
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        name = chunks[0].path_in_schema
        found = [chunk.statistics for chunk in chunks]
        if "." in name or any(one is None or not one.has_null_count for one in found):
            continue  # A nested column, or nothing is known.
        nulls[name] = sum(one.null_count for one in found)
        valued = [one for one, chunk in zip(found, chunks, strict=True) if one.null_count < chunk.num_values]
        if valued and all(one.has_min_max for one in valued):
            least, most = min(one.min for one in valued), max(one.max for one in valued)
            low, high = _bound(least, up=False), _bound(most, up=True)
            if low is not None and high is not None:
                lowest[name], highest[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _bound(value: Any, *, up: bool) -> Any:
    """Return a minimum or maximum as JSON has it; None if it is not certain, or no reader uses it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= STATS_TEXT_MAX else None
    if isinstance(value, datetime.datetime):
        return _milliseconds(value, up=up)
    return value.isoformat() if isinstance(value, datetime.date) else None


def _milliseconds(value: datetime.datetime, *, up: bool) -> str | None:
    part = value.microsecond % 1000
    try:
        rounded = value + datetime.timedelta(microseconds=(1000 - part if up else -part) if part else 0)
    except OverflowError:
        return None
    text = rounded.strftime("%Y-%m-%dT%H:%M:%S") if rounded.year >= 1000 else None
    return text and f"{text}.{rounded.microsecond // 1000:03}{'Z' if value.tzinfo else ''}"


def text_of(value: object) -> str | None:
    """Return a partition's value as Delta's log has it; the log has the same text for an empty text and for null."""
    text = value.isoformat() if isinstance(value, datetime.date) else None if value is None else str(value)
    if isinstance(value, bool):
        text = str(value).lower()
    return text or None


def _folder(value: str | None) -> str:
    return NULL_FOLDER if value is None else _escaped(value)


def _escaped(text: str) -> str:
    """Return a name for a folder, as Spark unescapes it. Other characters than ASCII stay."""
    return _UNSAFE.sub(lambda one: one[0] if _SAFE.match(one[0]) else f"%{ord(one[0]):02X}", text)


def _as(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with exactly these types: Spark may send large ones, or another name of the time zone."""
    if rows.schema.equals(schema):
        return rows
    columns = [rows.column(index).cast(column.type) for index, column in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def add_fields(one: DataFile) -> Mapping[str, Any]:
    """Return the fields of the action that adds the file to a table."""
    return {
        "path": one.path,
        "size": one.size,
        "partition_values": one.partition,
        "modification_time": one.modified,
        "data_change": True,
        "stats": one.stats,
    }
