"""Members of a group with one database look each other up there (docs/explanation/group-databases.md)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pubsub import embedded
from pubsub.client import Client, Message, Transaction
from pubsub.embedded import Embedded
from tests.client.opened import names

SECONDS = 60.0
COUNT = 6
ROOT = Path(__file__).parents[2]
Rows = list[tuple[str, str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster"), bind="tcp://127.0.0.1:0") as running:
        yield running


@pytest.fixture
def topic(cluster: Embedded) -> str:
    """A topic with the messages 0 to 5."""
    name = f"topic{next(names)}"
    with cluster.client("putter") as putter:
        for number in range(COUNT):
            putter.put(name, str(number).encode())
    return name


def ledger(database: str) -> Rows:
    with psycopg.connect(database) as other:
        return list(other.execute("select body, who from ledger order by body"))


def begin(cluster: Embedded, database: str, topic: str, where: str) -> subprocess.Popen[str]:
    """Start the member that dies."""
    with psycopg.connect(database) as other:
        other.execute("create table ledger (body text, who text)")
    program = Path(__file__).with_name("group_member.py")
    name, key = f"first{next(names)}", " ".join(cluster.proxy_keys)
    file = cluster.key_file(name, "put=*", "get=*", "names=*")
    command = [sys.executable, str(program), name, str(file), key, ",".join(cluster.proxies), database, topic, where]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """Wait until a process has stopped itself."""
    until = time.monotonic() + SECONDS
    while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)


def work(client: Client, database: str, topic: str) -> dict[str, Message]:
    """Let a second member work until each message has an effect; return its messages."""
    found: dict[str, Message] = {}

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.connection.execute("insert into ledger values (%s, 'second')", (message.body.decode(),))
        found[message.body.decode()] = message

    until = time.monotonic() + SECONDS
    while len({body for body, _ in ledger(database)}) < COUNT and time.monotonic() < until:
        client.process(topic, handle, group="workers", timeout=1.0)
    return found


async def work_on_a_loop(cluster: Embedded, database: str, topic: str) -> tuple[dict[str, Message], int]:
    """Let an `AsyncClient` be the second member; return its messages, and how many are in doubt at the end."""
    found: dict[str, Message] = {}

    async def handle(message: Message, transaction: Transaction) -> None:
        await transaction.execute("insert into ledger values (%s, 'second')", (message.body.decode(),))
        found[message.body.decode()] = message

    until = time.monotonic() + SECONDS
    async with cluster.async_client("third", database=database) as client:
        await client.subscribe(topic, group="workers")
        while len({body for body, _ in ledger(database)}) < COUNT and time.monotonic() < until:
            await client.process(topic, handle, group="workers", timeout=1.0)
        (group,) = await client.groups(topic)
    return found, group.in_doubt


@pytest.mark.parametrize("where", ["handler", "commit"])
def test_the_rest_of_a_killed_member_goes_to_another_and_each_effect_happens_once(
    cluster: Embedded, database: str, topic: str, where: str
) -> None:
    first = begin(cluster, database, topic, where)
    assert first.wait(SECONDS) == -signal.SIGKILL
    kept = ["0", "1", "2", *(["3"] if where == "commit" else [])]
    assert ledger(database) == [(body, "first") for body in kept]
    if where == "handler":
        found, in_doubt = asyncio.run(work_on_a_loop(cluster, database, topic))
    else:
        with cluster.client("second", database=database) as client:
            client.subscribe(topic, group="workers")
            found = work(client, database, topic)
            in_doubt = client.groups(topic)[0].in_doubt
    assert ledger(database) == [(str(n), "first" if str(n) in kept else "second") for n in range(COUNT)]
    assert not any(message.doubtful for message in found.values())
    if where == "handler":
        assert [found[body].attempts for body in sorted(found)] == [2, 1, 1]
    assert in_doubt == 0


def test_a_member_that_was_only_stopped_commits_nothing_more_and_goes_on(
    cluster: Embedded, database: str, topic: str
) -> None:
    first = begin(cluster, database, topic, "stopped")
    try:
        wait_until_stopped(first)
        with cluster.client("second", database=database) as client:
            client.subscribe(topic, group="workers")
            assert work(client, database, topic).keys() >= {"3"}
        first.send_signal(signal.SIGCONT)
        output, _ = first.communicate(timeout=SECONDS)
        # Its connections were ended with its life. The call finds out, and goes on in the next life by itself.
        assert output == ""
        assert first.returncode == 0
    finally:
        first.kill()
        first.wait()
    assert [body for body, _ in ledger(database)] == [str(n) for n in range(COUNT)]


def test_members_of_two_databases_do_not_look_each_other_up(
    cluster: Embedded, database: str, topic: str, tmp_path: Path
) -> None:
    first = begin(cluster, database, topic, "handler")
    assert first.wait(SECONDS) == -signal.SIGKILL
    with cluster.client("third", directory=tmp_path) as client:
        client.subscribe(topic, group="workers")
        time_out = time.monotonic() + 5.0
        while time.monotonic() < time_out and not client.groups(topic)[0].in_doubt:
            client.get_many(topic, 10, group="workers", timeout=0.5)
        client.get_many(topic, 10, group="workers", timeout=0.5)
        assert client.groups(topic)[0].in_doubt
