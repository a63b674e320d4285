"""A client's record: JSON lines while the client runs, Parquet after it is closed.

Parquet has its index at the end, so an unclosed file cannot be read, and a killed client would leave nothing. A client
therefore writes JSON lines, `ID.jsonl` in the record's directory, one file for each start. `close` turns the file into
`ID.parquet`. A reader of the directory reads both kinds.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import json as arrow_json
from pyarrow import parquet

from pubsub.client.files import sync
from pubsub.client.storage.recorder import RecordFile
from pubsub.errors import StorageError

SCHEMA: Final = pa.schema(
    [
        ("client", pa.string()), ("session", pa.int64()), ("n", pa.int64()), ("at", pa.int64()), ("kind", pa.string()),
        ("topic", pa.string()), ("publisher", pa.string()), ("first", pa.int64()), ("count", pa.int64()),
        ("result", pa.string()), ("on", pa.bool_()), ("handler", pa.bool_()), ("log", pa.string()),
        ("offset", pa.int64()), ("boot", pa.string()), ("version", pa.int64()),
        ("doubtful", pa.bool_()), ("continues", pa.bool_()), ("replay", pa.int64()), ("start", pa.string()),
    ]
)  # fmt: skip
"""Columns of a record (docs/audit.md)."""

_log: Final = logging.getLogger("pubsub.client")


class ParquetRecord:
    """The record of one start of a client, in a directory that many clients share.

    Raises:
        StorageError: the directory cannot be made or written to.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(str(directory), f"cannot hold records: {error.strerror}") from None
        self.path = directory / f"{uuid4().hex}.jsonl"
        self._lines = RecordFile(self.path)

    def write(self, lines: bytes | bytearray) -> int:
        """Append lines; see `RecordSink`."""
        return self._lines.write(lines)

    def close(self) -> None:
        """Convert the lines to Parquet; if that fails, the lines stay and remain valid."""
        self._lines.close()
        fresh, whole = self.path.with_suffix(".fresh"), self.path.with_suffix(".parquet")
        try:
            self._convert(fresh)
            sync(fresh)  # Sync before the lines are deleted. Otherwise a power cut could lose the complete record.
            fresh.replace(whole)
            sync(whole.parent)
            self.path.unlink()
        except (OSError, pa.ArrowException) as error:
            _log.warning("%s stays as it is: %s", self.path, error)
            fresh.unlink(missing_ok=True)

    def _convert(self, target: Path) -> None:
        options = arrow_json.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
        with (
            arrow_json.open_json(self.path, parse_options=options) as batches,
            parquet.ParquetWriter(target, SCHEMA) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
