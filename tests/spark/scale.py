"""Many rows through Spark on a cluster of two workers, while drivers, executors and servers are killed.

    python -m tests.spark.scale --rows 10000000 --seed 1 --dir DIR

A standalone master and two workers run on 127.0.0.1. A program puts rows of 100 bytes into two topics. One driver runs
two queries: a copy of the topics into a third topic, and Parquet files. Meanwhile drivers and executors are killed, the
primary of the server fails over to its standby, topics are moved to another server and back, and the servers delete
what both queries have acknowledged. At the end a reader counts each row, by its number, in the topic and in the files.
The count uses nothing of the pipelines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from zlib import crc32

import pyarrow.parquet as pq
from pyspark.sql.functions import date_format

from pubsub.client.requests import Proxies
from pubsub.protocol import Outcome, Put, Read, Records, encode_batch
from pubsub.spark.archive import BY, PARQUET
from pubsub.spark.archive import writer as archive_writer
from pubsub.spark.datasource import PubsubDataSource
from pubsub.spark.pipelines import Place, begin, source
from pubsub.spark.ranges import Topics
from tests.faults.cluster import Process, until
from tests.faults.members import PLAIN, SERVER, Members
from tests.ports import free_port
from tests.spark.test_standalone import ROOT, listens

TOPICS: Final = ("even", "odd")
COPY: Final = "copy"
ROW_BYTES: Final = 100
PUT_ROWS: Final = 5_000
STORE: Final = "0123456789abcdef"
QUERIES: Final = ("copied", "filed")
"""The queries, which are named as their subscriptions and the folders of their checkpoints."""

SECONDS_MAX: Final = 7_200.0
MEMORY: Final = {"spark.executor.memory": "1g", "spark.driver.memory": "1g", "spark.cores.max": "2"}


def row(number: int) -> bytes:
    """Return a row of 100 bytes with its number."""
    return b"%012d" % number + b"x" * (ROW_BYTES - 12)


class Counts:
    """How often each row was found."""

    def __init__(self, rows: int) -> None:
        self._found = bytearray(rows)
        self.doubled = self.foreign = 0

    def add(self, body: bytes) -> None:
        number = int(body[:12])
        if number >= len(self._found) or len(body) != ROW_BYTES:
            self.foreign += 1
        elif self._found[number]:
            self.doubled += 1
        else:
            self._found[number] = 1

    def result(self) -> dict[str, int]:
        """Return the numbers of lost, doubled and foreign rows."""
        return {"lost": self._found.count(0), "doubled": self.doubled, "foreign": self.foreign}


class Scale:
    """The processes of a run.

    Args:
        directory: where everything lives; it is made.
        rows: rows in both topics together.
        seed: of the faults.
        batch: most rows of a micro-batch.
    """

    def __init__(self, directory: Path, rows: int, seed: int, batch: int) -> None:
        self.directory, self.rows, self.batch = directory, rows, batch
        self.chance = random.Random(seed)
        directory.mkdir(parents=True)
        self.members = Members(directory, seed, clients=False, heartbeat=1.0, disk_bytes=8 << 30)
        self.cluster = self.members.cluster
        self.put_rows = 0
        self.faults: dict[str, int] = {}
        self.failed: BaseException | None = None
        self.drivers = 0

    def start_spark(self) -> None:
        """Start a master and two workers."""
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.cluster.process("master", "-m", "tests.spark.standalone", "master", "127.0.0.1", str(port)).start()
        until(lambda: listens(port), "the master listens")
        self.workers = []
        for number in (1, 2):
            words = ("worker", f"127.0.0.{number}", str(port), str(self.directory / f"worker{number}"))
            self.workers.append(self.cluster.process(f"worker{number}", "-m", "tests.spark.standalone", *words).start())

    def put_all(self) -> None:
        """Put all rows, the even numbers into one topic and the odd ones into the other."""
        link = Proxies(self.members.routing, 120.0)
        try:
            for first in range(0, self.rows, 2 * PUT_ROWS):
                for odd, topic in enumerate(TOPICS):
                    bodies = [row(number) for number in range(first + odd, min(first + 2 * PUT_ROWS, self.rows), 2)]
                    body = encode_batch(bodies)
                    base = first // 2
                    put = Put(f"alice{odd}", topic, base + 1, STORE, len(bodies), base, crc32(body), body=body)
                    answer = link.ask(put)  # type: ignore[arg-type]
                    assert answer.outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}, answer
                self.put_rows = min(first + 2 * PUT_ROWS, self.rows)
        except BaseException as error:
            self.failed = error
            raise
        finally:
            link.close()

    def start_driver(self, *, once: bool) -> Process:
        """Start a driver with both queries. `once`: it ends when all present rows are written."""
        self.drivers += 1
        facts = {
            "proxies": ",".join(self.members.routing), "directory": str(self.directory), "master": self.master,
            "batch": self.batch, "once": once,
        }  # fmt: skip
        driver = self.cluster.process(f"driver{self.drivers}", "-m", "tests.spark.scale", "--driver", json.dumps(facts))
        return driver.start()

    def batches(self) -> int:
        """Return the batches that both queries have begun."""
        logs = (self.directory / name / "offsets" for name in QUERIES)
        return sum(max((int(each.name) + 1 for each in log.glob("[0-9]*")), default=0) for log in logs)

    def after_batches(self, number: int, driver: Process) -> None:
        """Wait until so many further batches have begun."""
        goal = self.batches() + number

        def reached() -> bool:
            if self.failed is not None:
                raise self.failed
            assert driver.running.poll() is None, f"driver ended: {driver.errors.read_text()[-3000:]}"
            return self.batches() >= goal

        until(reached, f"{number} further batches", 600.0)
        time.sleep(self.chance.random())  # Somewhere within the batch.

    # Faults

    def kill_driver(self, driver: Process) -> Process:
        """Kill a driver, Python and Java, and start the next one."""
        self.end_driver(driver)
        return self.start_driver(once=False)

    def end_driver(self, driver: Process) -> None:
        """Kill a driver, Python and Java."""
        for pid in json.loads((self.directory / "pids").read_text()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.running.wait()

    def kill_executor(self, driver: Process) -> Process:
        """Kill one executor's Java; its Python workers live on for a while."""
        found = [pid for worker in self.workers for pid in children(worker.running.pid)]
        if found:
            os.kill(self.chance.choice(found), signal.SIGKILL)
        return driver

    def fail_over(self, driver: Process) -> Process:
        """Kill the primary of the server in the middle of a batch, and start it again behind its standby."""
        primary = self.members.primary()
        before = self.members.takeovers()
        primary.kill()
        until(lambda: self.members.takeovers() > before, "the standby takes over", 120.0)
        primary.start()
        until(self.members.in_sync, "both members are in sync", 300.0)
        return driver

    def move(self, driver: Process) -> Process:
        """Move a topic to the other server."""
        topic = self.chance.choice([*TOPICS, COPY])
        holders = next(one["holders"] for one in self.cluster.report("-")["topics"] if one["topic"] == topic)
        to = SERVER if holders[0]["server"] == PLAIN else PLAIN
        words = ("-m", "pubsub", "topic", "move", topic, "--to", to, "--yes", "--proxy", self.cluster.addresses[0])
        mover = self.cluster.process(f"move{sum(self.faults.values())}", *words).start()
        assert mover.wait(120.0) == 0, mover.errors.read_text()
        return driver

    def run(self, faults: int) -> None:
        """Do all of it."""
        self.start_spark()
        self.subscribe()
        putting = threading.Thread(target=self.put_all, daemon=True)
        putting.start()
        driver = self.start_driver(once=False)
        kinds: list[Callable[[Process], Process]] = [
            self.kill_driver, self.kill_executor, self.kill_driver, self.kill_executor, self.fail_over, self.move,
        ]  # fmt: skip
        for number in range(faults):
            self.after_batches(2, driver)
            kind = kinds[number % len(kinds)]
            driver = kind(driver)
            self.faults[kind.__name__] = self.faults.get(kind.__name__, 0) + 1
            print(f"  {time.strftime('%X')} {kind.__name__}: batch {self.batches()}, {self.put_rows} put", flush=True)
        putting.join(SECONDS_MAX)
        assert (self.failed, self.put_rows) == (None, self.rows)
        self.end_driver(driver)
        last = self.start_driver(once=True)
        assert last.wait(SECONDS_MAX) == 0, last.errors.read_text()[-4000:]

    def subscribe(self) -> None:
        """Keep what is put before the queries subscribe, and subscribe the reader of the copy."""
        link = Proxies(self.members.routing, 60.0)
        for topic, name in ((COPY, "reader"), *((topic, each) for topic in TOPICS for each in QUERIES)):
            Topics(link, name).subscribe(topic, "earliest")
        link.close()

    # The counts

    def count_topic(self) -> dict[str, int]:
        """Count the rows of the copy."""
        counts, link, after = Counts(self.rows), Proxies(self.members.routing, 60.0), None
        while True:
            status = link.ask(Read("test", COPY, after, records_max=65_536))
            if status.outcome is not Outcome.SUCCESS:
                break
            for body in Records(bytes(status.body)).bodies():
                counts.add(body)
            after = status.message
        link.close()
        return counts.result()

    def stored(self) -> dict[str, int]:
        """Return the records of each topic that the servers have not deleted."""
        found = dict.fromkeys((*TOPICS, COPY), 0)
        for server in (SERVER, PLAIN):
            for topic, facts in self.cluster.report(server)["topics"].items():
                if topic in found:
                    found[topic] += facts["records"]
        return found

    def count_files(self) -> dict[str, int]:
        """Count the rows of the files that the archive's log lists."""
        counts, place = Counts(self.rows), self.directory / "archive"
        for file in listed(place):
            for batch in pq.ParquetFile(place / file).iter_batches(columns=["value"]):
                for body in batch.column("value"):
                    counts.add(body.as_py())
        return counts.result()


def listed(archive: Path) -> set[str]:
    """Return the files of an archive by its log: a compacted entry and the later ones."""
    log = archive / "_spark_metadata"
    numbers = sorted(int(each.name.split(".")[0]) for each in log.iterdir() if each.name[0].isdigit())
    compacted = [int(each.name.split(".")[0]) for each in log.glob("*.compact")]
    found = set()
    for number in numbers:
        if number >= max(compacted, default=0):
            name = f"{number}.compact" if number in compacted else str(number)
            for line in (log / name).read_text().splitlines()[1:]:
                found.add(unquote("/".join(json.loads(line)["path"].split("/")[-3:])))
    return found


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    words = Path(f"/proc/{pid}/task/{pid}/children")
    everywhere = [Path(f"/proc/{pid}/task/{each.name}/children") for each in Path(f"/proc/{pid}/task").iterdir()]
    return [int(word) for each in {words, *everywhere} if each.exists() for word in each.read_text().split()]


def drive(facts: dict[str, Any]) -> None:
    """Run both queries: a driver's work."""
    from pubsub.spark.session import start

    conf = MEMORY | {
        "spark.executorEnv.PYTHONPATH": str(ROOT), "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.executor.cores": "1", "spark.scheduler.mode": "FAIR",
    }  # fmt: skip
    spark = start(facts["master"], conf)
    directory = Path(facts["directory"])
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    (directory / "pids").write_text(json.dumps([jvm, os.getpid()]))
    spark.dataSource.register(PubsubDataSource)
    copied, filed = QUERIES
    rows = (
        spark.readStream.format("pubsub")
        .option("proxies", facts["proxies"])
        .option("subscribe", ",".join(TOPICS))
        .option("subscription", copied)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerBatch", str(facts["batch"]))
        .option("minPartitions", "4")
        .option("timeout", "120")
        .load()
    )
    writer = rows.select("value").writeStream.format("pubsub").option("proxies", facts["proxies"]).option("topic", COPY)
    writer = writer.option("timeout", "120").option("checkpointLocation", str(directory / copied))
    trigger: dict[str, Any] = {"availableNow": True} if facts["once"] else {"processingTime": "1 seconds"}
    place = Place(proxies=tuple(facts["proxies"].split(",")), timeout=120.0)
    dated = source(spark, place, TOPICS, filed, facts["batch"]).withColumn("date", date_format("stamp", "yyyy-MM-dd"))
    files = archive_writer(spark, dated, PARQUET, str(directory / "archive"), BY)
    queries = [
        writer.trigger(**trigger).start(),
        begin(files, filed, str(directory / filed), once=facts["once"], seconds=1.0),
    ]
    print("running", flush=True)
    while any(each.isActive for each in queries):
        for each in queries:
            if not each.isActive and each.exception() is not None:
                raise SystemExit(f"{each.name or copied}: {each.exception()}")
        time.sleep(0.2)
    for each in queries:
        if each.exception() is not None:
            raise SystemExit(str(each.exception()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--faults", type=int, default=12)
    parser.add_argument("--batch", type=int, default=250_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--driver")
    words = parser.parse_args()
    if words.driver:
        drive(json.loads(words.driver))
        return
    if words.dir is None:
        parser.error("--dir names the directory, which must not exist")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    began = time.monotonic()
    scale = Scale(words.dir, words.rows, words.seed, words.batch)
    try:
        scale.run(words.faults)
        ran = time.monotonic() - began
        counts = {"topic": scale.count_topic(), "files": scale.count_files()}
        stored = scale.stored()
    finally:
        scale.members.__exit__()
    print(f"{words.rows} rows of {ROW_BYTES} bytes, seed {words.seed}, {ran:.0f} s; faults {scale.faults}")
    print(f"drivers {scale.drivers}, takeovers {scale.members.takeovers()}, records stored at the end {stored}")
    print(json.dumps(counts))
    sys.exit(any(number for found in counts.values() for number in found.values()))


if __name__ == "__main__":
    main()
