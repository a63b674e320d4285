"""`spark-submit --py-files` to a standalone cluster with a Python that lacks this package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from importlib.metadata import distribution
from pathlib import Path

import pyspark
import pytest

from tests.faults.cluster import SPARK_SECONDS, Process, until
from tests.ports import free_port
from tests.spark.broker import Broker
from tests.spark.test_standalone import listens

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
NEEDED = ("msgspec", "pyarrow", "pyzmq")
"""What a worker needs beside the package, as docs/how-to/run-on-a-spark-cluster.md says."""


def bare(directory: Path) -> Path:
    """An interpreter of an environment with what a worker needs, without this package; nothing is fetched."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    for name in NEEDED:
        one = distribution(name)
        for top in sorted({file.parts[0] for file in one.files or () if file.parts[0] not in {"..", "__pycache__"}}):
            if not (packages / top).exists():
                (packages / top).symlink_to(str(one.locate_file(top)))
    return directory / "bin/python"


def package(directory: Path) -> Path:
    """The wheel under the name of a zip file."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    return wheel.rename(directory / "pubsub.zip")


def test_the_package_in_a_zip_file_reaches_workers_that_lack_it(broker: Broker, tmp_path: Path) -> None:
    rows = [b"%d" % number for number in range(4000)]
    broker.put("t", rows)
    python, file, port = bare(tmp_path / "bare"), package(tmp_path / "dist"), free_port()
    probe = subprocess.run([python, "-c", "import pubsub"], cwd=tmp_path, capture_output=True, check=False)
    assert b"No module named 'pubsub'" in probe.stderr
    with ExitStack() as stack:
        master = Process("master", tmp_path, ["-m", "tests.spark.standalone", "master", "127.0.0.1", str(port)]).start()
        stack.callback(master.kill)
        until(lambda: listens(port), "the master listens", SPARK_SECONDS)
        for number in (1, 2):
            words = ("worker", f"127.0.0.{number}", str(port), str(tmp_path / f"worker{number}"))
            stack.callback(Process(f"worker{number}", tmp_path, ["-m", "tests.spark.standalone", *words]).start().kill)
        conf = {"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.executor.memory": "512m"}
        home = Path(pyspark.__file__).parent
        done = subprocess.run(
            [
                home / "bin/spark-submit", "--master", f"spark://127.0.0.1:{port}", "--py-files", file,
                *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
                ROOT / "tests/spark/submitted.py", broker.address, (tmp_path / "checkpoint").as_uri(),
            ],
            cwd=tmp_path,
            env=os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(file)},
            capture_output=True, text=True, timeout=SPARK_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    result = json.loads(line)
    assert result["copied"] == len(rows)
    for executable, pubsub, zmq in result["places"]:
        assert Path(executable) == python
        assert pubsub.endswith("pubsub.zip/pubsub/__init__.py")
        assert str(tmp_path / "bare") in zmq
    assert Counter(broker.records("t.copy")) == Counter(rows)
