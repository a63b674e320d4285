"""`pubsub relay`: installs and prints its tables, sends until a signal, and says what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.faults.cluster import Cluster, until
from tests.postgres.outgoing import Connection, rows_of, shop
from tests.postgres.server import Postgres

__all__ = ["shop"]


def relay(*words: str, code: int = 0) -> str:
    """Run the command to its end; return all it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")}
    command = [sys.executable, "-m", "pubsub", "relay", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout + ended.stderr


def test_what_it_prints_makes_the_tables_and_may_be_run_by_psql(postgres: Postgres, database: str) -> None:
    postgres.create_role("printed")
    text = relay("--print", "--writers", "printed")
    with psycopg.connect(database) as connection:
        connection.execute(text.encode())
    said = relay("--install", "--database", database, "--writers", "printed")
    assert "has the tables pubsub.outgoing and pubsub.refused; printed may write rows" in said
    with psycopg.connect(database.replace("postgres@", "printed@")) as writer:
        writer.execute("insert into pubsub.outgoing (topic, body) values ('orders', '')")


def test_bad_surroundings_are_named(postgres: Postgres, database: str) -> None:
    assert "pubsub relay needs a database: give --database URL" in relay(code=8)
    assert "has no pubsub.outgoing; run: pubsub relay --install" in relay("--database", database, code=8)
    assert "--writers is for --install" in relay("--database", database, "--writers", "app", code=2)
    assert 'role "gone" does not exist' in relay("--install", "--database", database, "--writers", "gone", code=8)
    relay("--install", "--database", database)
    with psycopg.connect(database) as connection:
        connection.execute("update pubsub.relay set name = 'first'")
    assert "has the relay first" in relay("--database", database, "--name", "second", code=8)


@pytest.mark.slow
def test_it_sends_until_a_signal_and_serves_metrics(postgres: Postgres, shop: Connection, tmp_path: Path) -> None:
    import httpx2

    with Cluster(tmp_path) as cluster:
        cluster.run(proxies=1, servers=1)
        url = postgres.url(shop.info.dbname)
        options = ("--database", url, "--proxy", cluster.addresses[0], "--metrics", "127.0.0.1:0")
        process = cluster.process("relay", "-m", "pubsub", "relay", *options, "--name", "shop").start()
        line = process.wait_line("relay shop sends the rows of")
        assert url in line
        shop.execute("insert into pubsub.outgoing (topic, body) values ('orders', 'x')")
        until(lambda: rows_of(shop) == [], "the row is taken")
        page = line.split("metrics ")[1]

        def sent() -> bool:
            return "pubsub_relay_messages_sent_total 1.0" in httpx2.get(page, trust_env=False).text

        until(sent, "the message is stored")
        text = httpx2.get(page, trust_env=False).text
        for name in ("active 1.0", "rows_waiting 0.0", "rows_set_aside 0.0", "messages_unfinished 0.0", "ready 1.0"):
            assert f"pubsub_relay_{name}" in text
        process.running.send_signal(signal.SIGTERM)
        assert process.wait() == 0
