"""Exactly once on real Spark: drivers, tasks and servers die at each step, and every row is there once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pubsub.client.requests import Proxies
from pubsub.protocol import Outcome, Put, Read, Records, encode_batch
from tests.faults.cluster import SPARK_SECONDS, Cluster, Process, until
from tests.spark import query

pytestmark = pytest.mark.spark

ROWS = 10_000
KEPT_SECONDS = 3600.0
TOPICS = ("a", "b")
STORE = "0123456789abcdef"
STEPS = ("partitions", "write", "commit", "between", "published")
"""Of a batch, in order."""


class Bench:
    """A cluster with two topics of rows to be copied, and a checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(directory)
        self.link: Proxies | None = None

    def run(self, servers: int = 1) -> Bench:
        # Nobody is subscribed until Spark is there, which takes longer on a busy machine than servers keep such topics.
        self.cluster.run(proxies=1, servers=servers, retention_hold_seconds=KEPT_SECONDS)
        self.link = Proxies(self.cluster.addresses, 30.0)
        for topic in TOPICS:
            self.put(topic, 0, ROWS)
        return self

    def put(self, topic: str, first: int, count: int) -> None:
        assert self.link is not None
        for start in range(first, first + count, 1000):
            values = [f"{topic}{number}".encode() for number in range(start, start + 1000)]
            body = encode_batch(values)
            put = Put("alice", topic, start + 1, STORE, 1000, start, crc32(body), body=body)
            assert self.link.ask(put).outcome is Outcome.SUCCESS  # type: ignore[arg-type]

    def facts(self, **more: Any) -> dict[str, Any]:
        return {
            "proxies": ",".join(self.cluster.addresses),
            "subscribe": ",".join(TOPICS),
            "checkpoint": str(self.directory / "checkpoint"),
            "directory": str(self.directory),
            **more,
        }

    def killed(self, **facts: Any) -> Process:
        """Runs the query in a Spark of its own until the step kills it."""
        driver = self.cluster.process("driver", "-m", "tests.spark.query", json.dumps(self.facts(do="kill", **facts)))
        driver.start()
        assert driver.wait(SPARK_SECONDS) == -signal.SIGKILL, driver.errors.read_text()[-2000:]
        assert (self.directory / "reached").exists()
        return driver

    def finish(self, session: Any, **facts: Any) -> list[dict[str, Any]]:
        """Starts the query again with the same checkpoint and lets it end; its progress."""
        running = query.start(session, self.facts(**facts))
        assert running.awaitTermination(SPARK_SECONDS), "the query does not end"
        assert running.exception() is None
        return [json.loads(each.json) if hasattr(each, "json") else each for each in running.recentProgress]

    def reached(self) -> None:
        until((self.directory / "reached").exists, "the query comes to the step", SPARK_SECONDS)

    def records(self, topic: str) -> list[bytes]:
        assert self.link is not None
        out: list[bytes] = []
        after = None
        while True:
            status = self.link.ask(Read("test", topic, after, records_max=65_536))
            if status.outcome is not Outcome.SUCCESS:
                return out
            out += Records(bytes(status.body)).bodies()
            after = status.message

    def check(self, rows: int = ROWS) -> None:
        """Every row of every topic is in its copy once."""
        for topic in TOPICS:
            found = Counter(self.records(f"{topic}.copy"))
            expected = {f"{topic}{number}".encode() for number in range(rows)}
            lost, doubled = expected - found.keys(), sum(found.values()) - len(found)
            assert (len(lost), doubled, len(found.keys() - expected)) == (0, 0, 0), (topic, sorted(lost)[:5])

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        self.cluster.__exit__()


def sampled_steps(*each_time: str) -> list[Any]:
    """All steps of a batch; those not named are for the night."""
    return [step if step in each_time else pytest.param(step, marks=pytest.mark.nightly) for step in STEPS]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.nightly
def test_every_row_is_copied_once_without_a_fault(bench: Bench, session: Any) -> None:
    bench.run()
    progress = bench.finish(session)
    assert sum(each["numInputRows"] for each in progress) == 2 * ROWS
    bench.check()
    bench.put("a", ROWS, 1000)
    bench.put("b", ROWS, 1000)
    assert sum(each["numInputRows"] for each in bench.finish(session)) == 2000
    bench.check(ROWS + 1000)


OTHERWISE = {"partitions": 5, "shuffle": 3, "records": 7000}
"""A restart that cuts and orders the rows in another way."""


@pytest.mark.parametrize(
    ("step", "batch", "restart"),
    [
        pytest.param("partitions", 0, {}, marks=pytest.mark.nightly),
        pytest.param("write", 0, OTHERWISE, marks=pytest.mark.nightly),
        pytest.param("write", 2, {}, marks=pytest.mark.nightly),
        pytest.param("commit", 1, OTHERWISE, marks=pytest.mark.nightly),
        ("between", 1, OTHERWISE),
        pytest.param("published", 1, {}, marks=pytest.mark.nightly),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_driver_that_is_killed_leaves_every_row_once(
    bench: Bench, session: Any, step: str, batch: int, restart: dict[str, int]
) -> None:
    """Between two topics, one is published and the other is only staged: each time, that is the one that is tried."""
    bench.run().killed(step=step, batch=batch)
    bench.finish(session, **restart)
    bench.check()


def test_a_task_that_fails_after_staging_some_is_tried_again(bench: Bench, session: Any) -> None:
    bench.run()
    bench.finish(session, step="write", do="fail", batch=1)
    assert (bench.directory / "reached").exists()
    bench.check()


@pytest.mark.parametrize("step", sampled_steps("write", "between"))
def test_a_server_that_is_killed_and_comes_back_leaves_every_row_once(bench: Bench, session: Any, step: str) -> None:
    bench.run()
    running = query.start(session, bench.facts(step=step, do="wait", batch=0 if step == "partitions" else 1))
    bench.reached()
    (server,) = bench.cluster.servers
    server.kill()
    (bench.directory / "go").touch()
    server.start()
    assert running.awaitTermination(SPARK_SECONDS)
    assert running.exception() is None
    bench.check()


def move(bench: Bench, topic: str, server: str) -> None:
    """Has a topic moved, as an operator does, and waits until it is there."""
    words = ("-m", "pubsub", "topic", "move", topic, "--to", server, "--yes", "--proxy", bench.cluster.addresses[0])
    assert bench.cluster.process(f"move-{topic}", *words).start().wait() == 0


def holder(bench: Bench, topic: str) -> str:
    rows = bench.cluster.report("-")["topics"]
    return str(next(row["holders"][0]["server"] for row in rows if row["topic"] == topic))


@pytest.mark.parametrize("step", [pytest.param("commit", marks=pytest.mark.nightly), "between"])
def test_topics_that_move_between_stage_and_publish_leave_every_row_once(bench: Bench, session: Any, step: str) -> None:
    bench.run(servers=2)
    running = query.start(session, bench.facts(step=step, do="wait", batch=1))
    bench.reached()
    for topic in ("a", "a.copy", "b.copy"):
        move(bench, topic, "s1" if holder(bench, topic) == "s2" else "s2")
    (bench.directory / "go").touch()
    assert running.awaitTermination(SPARK_SECONDS)
    assert running.exception() is None
    bench.check()


@pytest.mark.nightly
def test_a_topic_that_moves_between_publish_and_replay_knows_the_batch(bench: Bench, session: Any) -> None:
    bench.run(servers=2).killed(step="published", batch=1)
    for topic in ("a", "a.copy"):
        move(bench, topic, "s1" if holder(bench, topic) == "s2" else "s2")
    bench.finish(session, **OTHERWISE)
    bench.check()
