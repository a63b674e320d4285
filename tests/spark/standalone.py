"""A master or a worker of a standalone Spark cluster, on loopback.

python -m tests.spark.standalone master HOST PORT
python -m tests.spark.standalone worker HOST MASTER_PORT DIRECTORY
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

from pubsub.spark.session import find_java

PACKAGE = "org.apache.spark.deploy"


def main() -> None:
    role, host, port, *rest = sys.argv[1:]
    home = find_java() or os.environ.get("JAVA_HOME", "")
    java = f"{home}/bin/java" if home else "java"
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    words = [java, "-cp", str(jars), "-Xmx512m", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    if role == "master":
        words += [f"{PACKAGE}.master.Master", "--host", host, "--port", port, "--webui-port", "0"]
    else:
        words += [f"{PACKAGE}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        words += ["--work-dir", rest[0], f"spark://127.0.0.1:{port}"]
    # A worker looks for Scala's version where Spark was built, unless it is told.
    spark = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": host}
    os.environ.update(spark)
    os.execvp(java, words)


if __name__ == "__main__":
    main()
