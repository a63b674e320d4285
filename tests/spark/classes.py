"""An archive of the classes that Spark loads: every Java of these tests maps it, instead of loading them one by one.

    python -m tests.spark.classes      makes it, once for a Java and a Spark, under the user's cache

It halves what the start of a driver costs; a Java that cannot use it, or finds none, goes on without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import platformdirs
import pyspark

from pubsub.errors import ConfigurationError
from pubsub.spark.session import find_java, start

SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Of a Java that lives for seconds."""

QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""What Java says of an archive it says on standard output, where Spark's own scripts read."""

SECONDS: Final = 600.0
FEW_ROWS: Final = {
    # Compiling the plans costs a third of an audit of few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # On a local disk this does the same as Spark's other class, which starts a process `readlink` four times a file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of a session whose queries have few rows. The commands that tests start have those of the product."""


def place() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    home = find_java() or os.environ.get("JAVA_HOME", "")
    command = [f"{home}/bin/java" if home else "java", "-version"]
    version = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    words = (version, pyspark.__version__, pyspark.__file__, SMALL)
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("pirate-pubsub")) / f"spark-classes-{key}.jsa"


def options() -> str:
    """What the variable JAVA_TOOL_OPTIONS is to be for all that the tests start."""
    try:
        found = place()
    except ConfigurationError:  # No Java: who needs one will say so.
        return SMALL
    return f"{SMALL} {QUIET} -XX:SharedArchiveFile={found}" if found.exists() else SMALL


def make(archive: Path) -> None:
    """Run a query, write, read and stream, and have Java archive what it loaded for that."""
    fresh = archive.with_suffix(f".{os.getpid()}")
    spark = start("local[1]", spark_driver_extraJavaOptions=f"{SMALL} {QUIET} -XX:ArchiveClassesAtExit={fresh}")
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as directory:
        spark.range(100).selectExpr("id % 7 as k").groupBy("k").count().write.parquet(f"{directory}/table")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10").load()
        stream = rows.writeStream.format("noop").option("checkpointLocation", f"{directory}/checkpoint")
        stream.trigger(once=True).start().awaitTermination(SECONDS)
        spark.read.parquet(f"{directory}/table").orderBy("k").collect()
        spark.stop()
    java.stdin.close()
    java.wait(SECONDS)
    if fresh.exists():
        fresh.replace(archive)


if __name__ == "__main__":
    archive = place()
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two that begin at once wait for the first.
        if not archive.exists():
            make(archive)
