"""A real PgBouncer before a PostgreSQL of the tests, in transaction mode as most services run it."""

from __future__ import annotations

import subprocess
from typing import Self

import psycopg

from tests.faults.cluster import until
from tests.ports import free_port
from tests.postgres.programs import program, user
from tests.postgres.server import SUPERUSER, Place, Postgres, end_with_parent


class PgBouncer:
    """One pooler; a context manager that starts and ends it.

    Args:
        postgres: the server behind it.
        mode: `pool_mode`: "transaction", "session" or "statement".
        size: connections to the server for each database and role.
    """

    def __init__(self, postgres: Postgres, mode: str = "transaction", size: int = 3) -> None:
        self.place = Place("pgbouncer")
        self.port = free_port()
        self._log = self.place.path / "log"
        self._settings = self.place.path / "pgbouncer.ini"
        (self.place.path / "users.txt").write_text(f'"{SUPERUSER}" ""\n')
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={postgres.port} user={SUPERUSER}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = any",
            f"auth_file = {self.place.path / 'users.txt'}",
            f"pool_mode = {mode}",
            f"default_pool_size = {size}",
        ]
        self._settings.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        found, runner = program("pgbouncer"), user()
        assert found is not None
        assert runner is not None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(found), str(self._settings)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", preexec_fn=end_with_parent,
                **runner.options(),
            )  # fmt: skip
        until(self._is_ready, "PgBouncer takes connections")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.place.remove()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PgBouncer ended at its start:\n{self._log.read_text()}"
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"
