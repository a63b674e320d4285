"""What is looked at before a client's file is used: its pages, and whether its log can be read to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from pubsub.base.database import find_damage
from pubsub.base.wal import commits_behind
from pubsub.errors import StoreDamaged

_REMEDY: Final = "restore it, or start with an empty directory"


def check_pages(db: apsw.Connection, path: str, found: int) -> None:
    """See that the pages of our tables, and the free ones, are sound; the application's are its own matter.

    SQLite refuses the commit of each transaction that meets a damaged page: nothing would go on, some time later.

    Args:
        found: the format that the file says it has.

    Raises:
        StoreDamaged: a page is not sound.
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

    Args:
        headless: the log began damaged.

    Raises:
        StoreDamaged: some are gone.
    """
    log = Path(f"{path}-wal")
    if not log.exists():
        return
    sound, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    if headless or commits_behind(log, max(0, sound)) > 1:  # One may not have been finished.
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise StoreDamaged(path, f"is damaged ({log.name} cannot be read to its end); {_REMEDY}")
