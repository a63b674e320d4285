"""Whether a client's state file is what was written: looked at when it is opened, before anything is changed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import apsw

from pubsub.base.database import find_damage
from pubsub.base.wal import blank_behind, frames, log_of
from pubsub.errors import StoreDamaged

_REMEDY = "restore it, or start with an empty directory"


def check_pages(db: apsw.Connection, path: str, found: int) -> None:
    """See that the pages of our tables, and the free ones, are sound; the application's are its own matter.

    SQLite refuses the commit of each transaction that meets a damaged page: nothing would go on, some time later.

    Args:
        found: the format that the file says it has; 0 for none.

    Raises:
        StoreDamaged: one is not.
    """
    ours = "select name from sqlite_schema where type = 'table' and name like 'pubsub\\_%' escape '\\'"
    tables = [name for (name,) in db.execute(ours)]
    findings = find_damage(db, ("sqlite_schema", *tables))
    if tables and found <= 0:
        findings.append("it has tables, and no format")
    if findings:
        raise StoreDamaged(path, f"is damaged ({findings[0]}); {_REMEDY}")


def check_log(db: apsw.Connection, path: str, *, headless: bool) -> None:
    """See that all commits of the last owner are there, where nothing but damage may have taken one.

    After a power cut some may be gone, and `cuts` counts it. In the boot in which they were made none is.

    Args:
        headless: whether the log began damaged before it was opened.

    Raises:
        StoreDamaged: some are gone.
    """
    log = log_of(Path(path))
    if not log.exists():
        return
    sound, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    behind = [frame for index, frame in enumerate(frames(log, checked=False)) if index >= sound]
    # One may not have been finished; a frame that is none any more (page 0) may have been another one.
    if headless or sum(bool(frame.pages) or not frame.page for frame in behind) > 1:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise StoreDamaged(path, f"is damaged ({log.name} cannot be read to its end); {_REMEDY}")


def blank_failed(db: apsw.Connection, path: str) -> None:
    """Take a commit that failed out of the write-ahead log, as far as the disk lets it.

    Commits that fail are written over each other. Where the last one is the shortest, what is left of the others would
    count as commits that were lost (`check_log`), and the next start be refused.
    """
    with suppress(apsw.Error, OSError):
        pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if pages >= 0:
            blank_behind(log_of(Path(path)), pages)
