"""A real PostgreSQL for tests: own data directory, free port of 127.0.0.1, own socket directory.

It is a child of the process that starts it, ends with it, and is only ever signalled by its PID.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from tests.faults.cluster import until
from tests.ports import free_port
from tests.postgres.programs import User, program, user

SUPERUSER = "postgres"
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1

MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 2 * 1024**3

STARTS = 5
"""Ports that a new server tries."""

SETTINGS: dict[str, str] = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
}
"""Settings of each server; those that decide what is durable keep PostgreSQL's defaults."""


def end_with_parent() -> None:
    """Have this process ended at once with its parent, so that no server outlives a killed run of the tests."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def run(name: str, *arguments: str | Path, as_user: User | None = None) -> None:
    """Run a program of PostgreSQL to its end. Its output is in the error if it fails."""
    found, runner = program(name), as_user or user()
    assert found is not None
    assert runner is not None
    command = [str(found), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **runner.options())
    assert ended.returncode == 0, f"{name}: {ended.stdout}{ended.stderr}"


def parent_of_places() -> Path | None:
    """Return the directory for data: memory if it has room, since tests end processes, never the host."""
    with contextlib.suppress(OSError):
        found = os.statvfs(MEMORY)
        if found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN and os.access(MEMORY, os.W_OK):
            return MEMORY
    return None


class Place:
    """A directory for PostgreSQL's processes: pytest's own are closed to other users."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"pubsub-{name}-", dir=parent_of_places()))
        runner = user()
        assert runner is not None
        os.chown(self.path, runner.uid, runner.gid)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@cache
def _seed() -> Path:
    """A data directory as `initdb` makes it; servers get copies, since one takes seconds to make."""
    place = Place("initdb")
    atexit.register(_remove_in, os.getpid(), place)
    run("initdb", "-D", place.path / "data", "-A", "trust", "-U", SUPERUSER, "-E", "UTF8", "--locale=C", "--no-sync")
    return place.path / "data"


def _remove_in(pid: int, place: Place) -> None:
    if os.getpid() == pid:  # Not in a fork of it.
        place.remove()


def initialised() -> Path:
    """Return a new data directory, beside the one that `initdb` made."""
    seed = _seed()
    copy = Path(tempfile.mkdtemp(dir=seed.parent)) / "data"
    subprocess.run(["cp", "-a", seed, copy], check=True)
    return copy


class PortTaken(AssertionError):
    """Another program listens at the port of a server that starts."""


class Postgres:
    """One server; a context manager that starts it, and removes its data at the end.

    Args:
        data: the data directory, made already; None: a new one.
        settings: settings beside `SETTINGS`.
    """

    def __init__(self, data: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.place = Place("postgres")
        self.port = free_port()
        self.data = self.place.path / "data"
        self.log = self.place.path / "log"
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        (data or initialised()).rename(self.data)

    def __enter__(self) -> Self:
        try:
            for _ in range(STARTS - 1):
                with contextlib.suppress(PortTaken):
                    self.start()
                    return self
                self.port = free_port()  # A program that does not claim its ports was faster.
            self.start()
        except BaseException:
            self.place.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        self.place.remove()

    # The process

    @property
    def pid(self) -> int:
        """PID of the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, settings: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        """Start the server, with these settings more for this start, and wait until it takes connections."""
        assert not self.is_running, "the server is running"
        found, runner = program("postgres"), user()
        assert found is not None
        assert runner is not None
        values = {**self._settings, **(settings or {}), "port": str(self.port)}
        values["unix_socket_directories"] = str(self.place.path)
        options = [part for name, value in values.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(found), "-D", str(self.data), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", preexec_fn=end_with_parent,
                **runner.options(),
            )  # fmt: skip
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the server takes connections."""
        until(self._is_ready, "PostgreSQL takes connections")

    def _is_ready(self) -> bool:
        if not self.is_running:
            said = self.log.read_text()[-2000:]
            kind = PortTaken if "Address already in use" in said else AssertionError
            raise kind(f"PostgreSQL ended at its start:\n{said}")
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, mode: str = "fast") -> None:
        """Stop the server as `pg_ctl stop -m MODE` does, and wait for its end.

        Args:
            mode: "fast", "immediate" (as a crash: the next start recovers from the WAL), or "smart".
        """
        if self._process is None:
            return
        by_mode = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "smart": signal.SIGTERM}
        if self.is_running:
            self._process.send_signal(by_mode[mode])
        self._process.wait(120)
        self._process = None

    def restart(self, mode: str = "fast", settings: Mapping[str, str] | None = None) -> None:
        """Stop the server in a mode and start it again on the same port."""
        self.stop(mode)
        self.start(settings)

    def kill_backend(self, pid: int) -> None:
        """Kill a backend with SIGKILL: the postmaster ends all connections and recovers."""
        with self.connect() as connection:
            row = connection.execute("select 1 from pg_stat_activity where pid = %s", (pid,)).fetchone()
        assert row is not None, f"{pid} is no backend of this server"
        os.kill(pid, signal.SIGKILL)

    def terminate(self, application: str, database: str) -> list[int]:
        """End the connections of an application with `pg_terminate_backend`; return their PIDs."""
        query = "select pid from pg_stat_activity where application_name = %s and datname = %s"
        with self.connect() as connection:
            pids = [row[0] for row in connection.execute(query, (application, database))]
            return [pid for pid in pids if connection.execute("select pg_terminate_backend(%s)", (pid,)).fetchone()]

    # Databases

    def url(self, database: str, role: str = SUPERUSER) -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres", **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as the superuser, in autocommit."""
        return psycopg.connect(self.url(database), autocommit=True, **options)

    def create_database(self, template: str = "template0") -> str:
        """Create a database as a copy of a template; return its name."""
        self._databases += 1
        name = f"test_{self._databases}"
        with self.connect() as connection:
            statement = sql.SQL("create database {} template {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def template(self, fill: Callable[[psycopg.Connection[tuple[Any, ...]]], object], name: str) -> str:
        """Create a database, have `fill` fill it, and return its name for `create_database`."""
        with self.connect() as connection:
            if connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone() is None:
                connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
                with self.connect(name) as inside:
                    fill(inside)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and end the connections to it."""
        with self.connect() as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def create_role(self, name: str, attributes: str = "login") -> None:
        """Create a role of the cluster unless it exists."""
        with self.connect() as connection:
            if connection.execute("select 1 from pg_roles where rolname = %s", (name,)).fetchone() is None:
                connection.execute(sql.SQL("create role {} " + attributes).format(sql.Identifier(name)))

    # A replica

    def replica(self, settings: Mapping[str, str] | None = None) -> Postgres:
        """Make a replica of this server by `pg_basebackup`; it is a context manager as its primary.

        A replica lags while its `recovery_min_apply_delay` lasts, or while `pg_wal_replay_pause` holds it.
        """
        place = Place("basebackup")
        try:
            run(
                "pg_basebackup", "-D", place.path / "data", "-h", "127.0.0.1", "-p", str(self.port), "-U", SUPERUSER,
                "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync",
            )  # fmt: skip
            return Postgres(place.path / "data", {**self._settings, **(settings or {})})
        finally:
            place.remove()

    def promote(self) -> None:
        """Promote a replica to a primary, and wait until it takes writes."""
        with self.connect() as connection:
            promoted = connection.execute("select pg_promote(true, 60)").fetchone()
        assert promoted == (True,)
