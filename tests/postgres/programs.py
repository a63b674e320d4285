"""Where PostgreSQL's programs are, and the system user under which they run: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REQUIRED = os.environ.get("PUBSUB_POSTGRES_TESTS") == "required"
"""Whether the tests that need PostgreSQL must run, as in `.ci/run`."""

USERS = ("postgres", "nobody")
"""System users under which root starts PostgreSQL, the first that exists."""

DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian puts the programs of each version; they are not on the PATH."""


@dataclass(frozen=True)
class User:
    """A system user for PostgreSQL's processes; `None` in `options` is oneself."""

    uid: int
    gid: int

    def options(self) -> dict[str, Any]:
        """Return the options of `subprocess.Popen` that start a process as this user."""
        return {} if self.uid == os.getuid() else {"user": self.uid, "group": self.gid, "extra_groups": ()}


@cache
def user() -> User | None:
    """Return the user for PostgreSQL's processes: oneself, or another one for root. None if there is no other."""
    if os.getuid() != 0:
        return User(os.getuid(), os.getgid())
    for name in USERS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(found.pw_uid, found.pw_gid)
    return None


@cache
def program(name: str) -> Path | None:
    """Return the path of a program of PostgreSQL: of Debian's latest version, or on the PATH."""
    versions = sorted(DEBIAN.glob("[0-9]*"), key=lambda path: float(path.name), reverse=True)
    for version in versions:
        if (found := version / "bin" / name).exists():
            return found
    on_path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return Path(on_path) if on_path else None


def missing() -> str:
    """Return the reason for which the tests with PostgreSQL cannot run; "" if they can."""
    absent = [name for name in ("initdb", "postgres", "pg_basebackup", "psql") if program(name) is None]
    if absent:
        return f"PostgreSQL is not installed (no {', '.join(absent)}); on Debian: apt-get install postgresql"
    if find_spec("psycopg") is None:
        return "psycopg is not installed; run: pip install '.[postgres]'"
    if user() is None:
        return (
            f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}; run the tests as another user"
        )
    return ""
