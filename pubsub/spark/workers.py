"""Python workers of Spark on this machine that start fast: forked by a daemon that has imported their modules already.

    SCRIPT -m pyspark.daemon …      where SCRIPT, the worker's Python for Spark, runs this module

Spark puts PySpark's zip file in front of a worker's path. Nothing in it is compiled, so an import of it costs a second
for each start of a query. And Spark's daemon imports nothing before it forks, so each worker imports PyArrow and this
package again. Here workers import the installed PySpark, and the daemon imports the modules of the source and the sink
once. A worker still is a process of its own with the same code.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import os
import runpy
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import platformdirs

DAEMON: Final = "pyspark.daemon"
LOADED: Final = (
    "pyarrow",
    "pubsub.spark.datasource",
    "pubsub.spark.delta.writer",
    "pubsub.spark.sink",
    "pubsub.spark.source",
)
ZIP: Final = "pyspark.zip"


def python() -> str:
    """Return the Python for Spark's workers on this machine: a script, or this Python where no script can be run."""
    place = Path(platformdirs.user_cache_dir("pirate-pubsub")) / "python"
    with contextlib.suppress(OSError):
        name = hashlib.sha256(sys.executable.encode()).hexdigest()[:16]
        script = write_script(place / name, sys.executable, "-m", __name__)
        if os.access(script, os.X_OK):  # Not on a file system that executes nothing.
            return str(script)
    return sys.executable


def write_script(place: Path, *words: str) -> Path:
    """Write a script that runs a command with its arguments, and make its directory; return it.

    Raises:
        OSError: it cannot be written.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(f".{os.getpid()}")
    fresh.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(place)  # Two processes that start together write the same content.
    return place


def is_zip(path: str) -> bool:
    """Return True if an entry of the module path is PySpark's zip file."""
    return path.endswith(f"{os.sep}{ZIP}")


def leave_zip() -> None:
    """Take PySpark from where it is installed, if it is installed outside the zip file."""
    given = list(sys.path)
    sys.path[:] = [path for path in given if not is_zip(path)]
    if find_spec("pyspark") is None:
        sys.path[:] = given


def load(*modules: str) -> None:
    """Import these and the modules of source and sink before a fork.

    The worker repeats an import that fails, and reports it.
    """
    given = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # Otherwise NumPy starts threads, and a fork loses them.
    for each in (*modules, *LOADED):
        with contextlib.suppress(Exception):
            importlib.import_module(each)
    os.environ.pop("OPENBLAS_NUM_THREADS")
    if given is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = given
    gc.collect()
    gc.freeze()


def main() -> None:
    words = sys.argv[1:]
    if words[:1] != ["-m"]:  # Spark also asks this Python for its version.
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - the same interpreter.
    leave_zip()
    run(words)


def run(words: Sequence[str]) -> None:
    """Run `python WORDS…`; the words are `-m`, a module and its arguments."""
    sys.argv = list(words[1:])
    if words[1] == DAEMON:
        load(words[2])
    runpy.run_module(words[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
