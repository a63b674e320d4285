"""Python workers of Spark, forked by a daemon that has imported their modules already.

    PYSPARK_PYTHON=SCRIPT      where SCRIPT runs `python -m tests.spark.workers "$@"`: see `write_script`

Spark starts a worker for each plan, read and commit. Its daemon imports nothing before it forks, so each worker imports
PyArrow, PySpark and this package again. PySpark comes from a zip file then, in which nothing is compiled. Here the
daemon imports all of it once, from the installed package. A worker still is a process of its own with the same code.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import shlex
import sys
from pathlib import Path
from typing import Final

DAEMON: Final = "pyspark.daemon"
LOADED: Final = (
    "pyarrow", "deltalake", "pubsub.spark.datasource", "pubsub.spark.delta.writer", "pubsub.spark.sink",
    "pubsub.spark.source", "tests.spark.delta_query", "tests.spark.query",
)  # fmt: skip
ZIP: Final = "pyspark.zip"


def write_script(place: Path) -> Path:
    """Write the program that PYSPARK_PYTHON names."""
    place.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.spark.workers "$@"\n', encoding="utf-8")
    place.chmod(0o755)
    return place


def load(module: str) -> None:
    """Import a worker's modules before the fork. An import that fails is left to the worker, which reports it."""
    given = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Otherwise NumPy starts threads, which a fork loses.
    for each in (module, *LOADED):
        with contextlib.suppress(ImportError):
            importlib.import_module(each)
    os.environ.pop("OPENBLAS_NUM_THREADS")
    if given is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = given
    gc.collect()
    gc.freeze()


def main() -> None:
    words = sys.argv[1:]
    if words[:1] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *words])
    sys.path[:] = [path for path in sys.path if not path.endswith(f"/{ZIP}")]
    sys.argv = words[1:]
    if words[1] == DAEMON:
        load(words[2])
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
