"""A synchronous standby that is away: each commit waits for it, and a wait that is cut has committed, but not there."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from pubsub.client.storage.postgres.store import PostgresStore
from tests.faults.cluster import until
from tests.postgres.server import Postgres
from tests.postgres.stores import counters, opened, row

WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'pubsub client billing'"


@pytest.fixture
def store(own_postgres: Postgres) -> Iterator[PostgresStore]:
    """A store with one row, whose database waits for a standby that is not there."""
    with closing(opened(own_postgres.url("postgres"))) as made:
        made.commit([row(1)])
        _standby(own_postgres, "gone")
        yield made


def _standby(postgres: Postgres, name: str) -> None:
    with postgres.connect() as other:
        other.execute(f"alter system set synchronous_standby_names = '{name}'")
        other.execute("select pg_reload_conf()")
        until(lambda: other.execute("show synchronous_standby_names").fetchone() == (name,), "the setting is in force")


def _waiting(postgres: Postgres) -> int:
    with postgres.connect() as other:
        return int(until(lambda: other.execute(WAITING).fetchone(), "a commit waits for the standby")[0])


@pytest.mark.parametrize("end", ["standby", "cancel", "terminate"])
def test_a_commit_waits_for_its_standby_and_has_happened_however_the_wait_ends(
    own_postgres: Postgres, store: PostgresStore, end: str
) -> None:
    failures: list[BaseException] = []

    def commit() -> None:
        try:
            store.commit([row(2), row(3)])
        except BaseException as error:  # noqa: BLE001 - the test looks at it.
            failures.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    pid = _waiting(own_postgres)
    if end == "standby":
        _standby(own_postgres, "")
    else:
        with own_postgres.connect() as other:
            other.execute(f"select pg_{end}_backend({pid})")
    thread.join(60)
    assert not thread.is_alive()
    assert not failures
    _standby(own_postgres, "")
    store.commit([row(4)])
    assert counters(store) == [1, 2, 3, 4]


def test_ctrl_c_ends_the_wait_and_the_next_start_has_the_commit(own_postgres: Postgres) -> None:
    program = (
        "import sys\nfrom tests.postgres.stores import opened, row\n"
        "store = opened(sys.argv[1])\nprint('opened', flush=True)\nsys.stdin.readline()\n"
        "store.commit([row(1), row(2)])\n"
    )
    command = [sys.executable, "-c", program, own_postgres.url("postgres")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stderr is not None
        assert client.stdout.readline() == "opened\n"
        _standby(own_postgres, "gone")
        client.stdin.write("\n")
        client.stdin.flush()
        _waiting(own_postgres)
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == -signal.SIGINT
        assert "KeyboardInterrupt" in client.stderr.read()
    _standby(own_postgres, "")
    with closing(opened(own_postgres.url("postgres"))) as store:
        assert counters(store) == [1, 2]
