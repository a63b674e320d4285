"""A client's record in Parquet: JSON lines while the client runs, Parquet once it is closed.

Parquet has its index at the end, so a file that its writer did not close cannot be read: a killed client would leave
nothing. What a client writes is JSON lines, `ID.jsonl` in the record's directory, one for each start; `close` makes
`ID.parquet` of it. Whoever reads the directory reads both kinds.
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
        ("doubtful", pa.bool_()), ("continues", pa.bool_()),
    ]
)  # fmt: skip
"""The columns of a record (docs/audit.md)."""

_log: Final = logging.getLogger("pubsub.client")


class ParquetRecord:
    """The record of one start of a client, in a directory that many share.

    Raises:
        StorageError: the directory cannot be made, or nothing can be written there.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(str(directory), f"cannot be recorded to: {error.strerror}") from None
        self.path = directory / f"{uuid4().hex}.jsonl"
        self._lines = RecordFile(self.path)

    def write(self, lines: bytes | bytearray) -> int:
        """Append lines; see `RecordSink`."""
        return self._lines.write(lines)

    def close(self) -> None:
        """Make Parquet of it; where that fails the lines stay as they are, and count as much."""
        self._lines.close()
        fresh, whole = self.path.with_suffix(".fresh"), self.path.with_suffix(".parquet")
        try:
            self._convert(fresh)
            sync(fresh)  # A power cut takes the last lines of a record, and would take all of one that is in no file.
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
