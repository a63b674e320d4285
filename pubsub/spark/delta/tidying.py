"""Removes the files that killed batches left beside a Delta table.

A file belongs to the batch in its name, and only one commit can ever list it: the one with this batch's number. So a
file is an orphan if the log has that commit and the commit does not list the file. This is certain beside a running
writer, whose batch has no commit yet, and beside a table that was compacted, whose older versions still list the file.
No clock is compared. The rule is docs/explanation/spark-exchange.md, K19.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pubsub.spark.delta.files import NAME
from pubsub.spark.delta.table import LOG, is_table

ENTRIES_MAX: Final = 10_000
"""Newest entries of the log that are read. Files of older batches stay for `DeltaTable.vacuum` to remove."""


def tidy(directory: str, query: str, name: str) -> int:
    """Remove orphans; return their number.

    Args:
        query: application of the commits.
        name: the query in the names of files.
    """
    if not is_table(directory):
        return 0
    root = Path(directory)
    found: dict[int, set[str]] = {}
    for path in _data_files(root):
        parts = NAME.fullmatch(path.name)
        if parts and parts["query"] == name:
            found.setdefault(int(parts["batch"]), set()).add(path.relative_to(root).as_posix())
    removed = 0
    for batch, listed in _commits(root / LOG, query):
        if not found:
            break
        for orphan in found.pop(batch, set()) - listed:
            (root / orphan).unlink(missing_ok=True)
            removed += 1
    return removed


def _data_files(root: Path) -> Iterator[Path]:
    for folder in root.iterdir():
        if folder.is_dir() and not folder.name.startswith(("_", ".")):
            yield from folder.rglob("*.parquet")
        elif folder.suffix == ".parquet":
            yield folder


def _commits(log: Path, query: str) -> Iterator[tuple[int, set[str]]]:
    """Yield the batches of a query and the files that they added, the newest first."""
    entries = sorted((path for path in log.glob("*.json") if path.stem.isdigit()), reverse=True)
    for entry in entries[:ENTRIES_MAX]:
        try:
            lines = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (FileNotFoundError, ValueError):  # Cleaned up meanwhile, or being written now.
            continue
        batches = [one["txn"]["version"] for one in lines if one.get("txn", {}).get("appId") == query]
        if batches:
            yield batches[0], {unquote(one["add"]["path"]) for one in lines if "add" in one}
