"""The primary of a server dies for good in the midst of a batch of Spark's, and every row is there once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.client.requests import Proxies
from tests.faults.cluster import SPARK_SECONDS
from tests.faults.members import Members
from tests.spark import query
from tests.spark.test_exactly_once import KEPT_SECONDS, OTHERWISE, ROWS, TOPICS, Bench, sampled_steps

pytestmark = [pytest.mark.spark, pytest.mark.faults]


class PairBench(Bench):
    """The same on a server with a standby, and on no other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.members = Members(directory, 1, clients=False, plain=False, retention_hold_seconds=KEPT_SECONDS)
        self.cluster = self.members.cluster
        self.link = Proxies(self.members.routing, 30.0)
        for topic in TOPICS:
            self.put(topic, 0, ROWS)

    def fail_over(self) -> None:
        """The primary's process is killed, and does not come back."""
        self.members.primary().kill()

    def close(self) -> None:
        self.link.close()
        self.members.__exit__()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PairBench]:
    made = PairBench(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("step", sampled_steps("published"))
def test_a_primary_that_dies_for_good_leaves_every_row_once(pair: PairBench, session: Any, step: str) -> None:
    running = query.start(session, pair.facts(step=step, do="wait", batch=0 if step == "partitions" else 1))
    pair.reached()
    pair.fail_over()
    (pair.directory / "go").touch()
    assert running.awaitTermination(SPARK_SECONDS)
    assert running.exception() is None
    pair.check()
    assert pair.members.takeovers() == 1


@pytest.mark.nightly
def test_a_driver_and_then_the_primary_die_and_the_batch_is_known_to_the_standby(pair: PairBench, session: Any) -> None:
    pair.killed(step="between", batch=1)
    pair.fail_over()
    pair.finish(session, **OTHERWISE)
    pair.check()
