"""Check at the opening, before any change, that a client's state file has its written content.

The rule is docs/explanation/stores.md, S10.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import apsw

from pubsub.base.database import find_damage
from pubsub.base.wal import blank_behind, frames, log_of
from pubsub.errors import StoreDamaged

_REMEDY = "restore it, or start with an empty directory"


def check_pages(db: apsw.Connection, path: str, found: int) -> None:
    """Check the pages of our tables and the free pages. The application's tables are its own matter.

    SQLite refuses the commit of each transaction that meets a damaged page, so the client would stop at some later
    time.

    Args:
        found: the format number in the file; 0 for none.

    Raises:
        StoreDamaged: a page is damaged.
    """
    ours = "select name from sqlite_schema where type = 'table' and name like 'pubsub\\_%' escape '\\'"
    tables = [name for (name,) in db.execute(ours)]
    findings = find_damage(db, ("sqlite_schema", *tables))
    if tables and found <= 0:
        findings.append("it has tables, but no format number")
    if findings:
        raise StoreDamaged(path, f"is damaged ({findings[0]}); {_REMEDY}")


def check_log(db: apsw.Connection, path: str, *, headless: bool) -> None:
    """Check that all commits of the last owner are there, if only damage can have destroyed any.

    After a power cut some may be missing, which `cuts` counts. In the boot in which they were made, none may be.

    Args:
        headless: True if the log began damaged before it was opened.

    Raises:
        StoreDamaged: some commits are missing.
    """
    log = log_of(Path(path))
    if not log.exists():
        return
    sound, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    behind = [frame for index, frame in enumerate(frames(log, checked=False)) if index >= sound]
    # One commit may be unfinished. An overwritten frame (page 0) may have been the end of another one.
    if headless or sum(bool(frame.pages) or not frame.page for frame in behind) > 1:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise StoreDamaged(path, f"is damaged ({log.name} cannot be read to its end); {_REMEDY}")


def blank_failed(db: apsw.Connection, path: str) -> None:
    """Remove a failed commit from the write-ahead log, if the disk allows it.

    Failed commits overwrite each other. If the last one is the shortest, the rest of the others would look like lost
    commits (`check_log`), and the next start would be refused.
    """
    with suppress(apsw.Error, OSError):
        pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if pages >= 0:
            blank_behind(log_of(Path(path)), pages)
