"""A standalone Spark cluster of two hosts: a copy of a slow task stages the same rows beside it."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.faults.cluster import SPARK_SECONDS, until
from tests.ports import free_port
from tests.spark.test_exactly_once import Bench

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_a_speculative_copy_of_a_task_leaves_every_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    bench, port = Bench(tmp_path), free_port()
    try:
        bench.run()
        bench.cluster.process("master", "-m", "tests.spark.standalone", "master", "127.0.0.1", str(port)).start()
        until(lambda: listens(port), "the master listens")
        for number in (1, 2):  # A copy runs on another host than the task: each worker is one.
            words = ("worker", f"127.0.0.{number}", str(port), str(tmp_path / f"worker{number}"))
            bench.cluster.process(f"worker{number}", "-m", "tests.spark.standalone", *words).start()
        conf = SPECULATION | {"spark.executorEnv.PYTHONPATH": str(ROOT)}
        facts = bench.facts(do="wait", step="write", batch=1, master=f"spark://127.0.0.1:{port}", conf=conf)
        driver = bench.cluster.process("driver", "-m", "tests.spark.query", json.dumps(facts)).start()
        # The first task that comes to the step waits for ever: the query ends by what its copy does.
        assert driver.wait(SPARK_SECONDS) == 0, driver.errors.read_text()[-2000:]
        assert (tmp_path / "reached").exists()
        bench.check()
    finally:
        (tmp_path / "go").touch()
        bench.close()
