"""Keep the files that the command `get` writes: the committed length of each part file (see `client.writing`).

The file is on the machine of the command. Only its row is in the client's state, in one commit with the position.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pubsub.client.storage.transaction import Transaction

TABLE: Final = (
    "create table if not exists pubsub_files"
    " (path text primary key, part text not null, size integer not null) without rowid"
)
"""A state file gets this table with the first file."""


def keep_file(transaction: Transaction, path: Path, part: Path, size: int) -> None:
    """Keep the length of a part file, which becomes `path` at the end."""
    transaction.prepare_files()
    # A name is stored as bytes, since it may be no valid UTF-8. Earlier releases stored a text where it was.
    transaction.run(
        "insert into pubsub_files (path, part, size) values (?, ?, ?)"
        " on conflict (path) do update set part = excluded.part, size = excluded.size",
        (os.fsencode(path), os.fsencode(part), size),
    )


def kept_size(transaction: Transaction, path: Path) -> int:
    """Return the committed length of the part file that becomes `path`; 0 if none is."""
    transaction.prepare_files()
    found = transaction.run("select size from pubsub_files where path = ?", (os.fsencode(path),))
    return int(found[0][0]) if found else 0


def forget_file(transaction: Transaction, path: str | bytes) -> None:
    """Forget a file; `path` as `Reading.files` returned it."""
    transaction.run("delete from pubsub_files where path = ?", (path,))
