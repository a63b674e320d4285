"""Shared parts of the pipelines; each pipeline is a few lines over the source and the sink.

A pipeline has a name, which is the name of its subscription, and a checkpoint, in which Spark keeps its progress. The
two belong together: with both, a killed run continues where it was, with each message once.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pubsub.errors import ConfigurationError, PubsubError, Unavailable
from pubsub.protocol.names import check_id, check_topic
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.datasource import PubsubDataSource
from pubsub.spark.identity import NOBODY, Identity
from pubsub.spark.ranges import Topics
from pubsub.spark.session import cause, start
from pubsub.spark.storage import is_local, open_storage

IDENTITY: Final = "pipeline.json"
"""File in a checkpoint that names its pipeline."""

LOG: Final = "_spark_metadata"
"""Folder in Spark's output directory that lists the valid files, by batch."""

COMPACT: Final = ".compact"
"""Suffix of a batch's entry in that log that also lists all earlier batches."""

CLOSED: Final = "closed"
"""Folder in a rollup's directory for windows that have ended."""

POLL_SECONDS: Final = 0.2
_WORKER: Final = re.compile(
    r"Python worker (exited unexpectedly|failed to connect|.*timed out)|PYTHON_WORKER|Accept timed"
)
"""In Spark's errors of a Python worker that crashed, was killed or did not answer in time."""

_RAISED: Final = re.compile(r"^(pubsub(?:\.\w+)+): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^[A-Z]\w*(?:Error|Exception): .+$", re.MULTILINE)
"""In Spark's errors: the last line of a traceback of ours, and of one with an exception of Python itself."""


class PipelineFailed(PubsubError):
    """A query ended with an error.

    Attributes:
        exit_code: that of the error if it is one of ours.
        transient: True if a restart may help: the service did not answer in time, or a Python worker of Spark ended.
    """

    def __init__(self, reason: str, exit_code: int = 1, *, transient: bool = False) -> None:
        self.reason, self.exit_code, self.transient = reason, exit_code, transient
        super().__init__(reason, exit_code)

    def __str__(self) -> str:
        return self.reason


@contextmanager
def running(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Run Spark for the time of a `with` block; an existing session of this process is used and stays.

    Args:
        master, conf: see `session.start`.

    Raises:
        PubsubError: any error of Spark in the block, as one sentence.
    """
    own = SparkSession.getActiveSession() is None
    spark = start(master, conf)
    if own and not os.environ.get("PUBSUB_TRACEBACK"):
        spark.sparkContext.setLogLevel("OFF")  # A failed query is reported in one sentence instead.
    try:
        spark.dataSource.register(PubsubDataSource)
        yield spark
    except (PySparkException, Py4JError) as error:
        raise failure(error) from error
    finally:
        if own:
            spark.stop()


@dataclass(frozen=True, kw_only=True)
class Place:
    """The cluster that a pipeline reads from and writes to.

    Attributes:
        proxies: addresses of the proxies' client side.
        timeout: seconds after which an unanswered request ends the query.
        identity: client ID and keys.
        take_over: continue a subscription that belongs to another checkpoint.
    """

    proxies: tuple[str, ...]
    timeout: float = 30.0
    identity: Identity = NOBODY
    take_over: bool = False

    @property
    def options(self) -> dict[str, str]:
        """The place as options of source and sink."""
        return {"proxies": ",".join(self.proxies), "timeout": f"{self.timeout:g}"} | self.identity.options


@dataclass
class Totals:
    """Progress of a run.

    Attributes:
        batches, messages: counts of this run.
        seconds: time since its begin.
        observed: sums of the query's observed values, by name.
        late: groups of rows that were left out because their window had ended.
    """

    batches: int = 0
    messages: int = 0
    seconds: float = 0.0
    late: int = 0
    observed: dict[str, int] = field(default_factory=dict)


def default_name(kind: str, *parts: str) -> str:
    """Return the name of a pipeline without a given one: equal for equal topics and target, and otherwise unique."""
    return f"{kind}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def complete_path(target: str) -> str:
    """Return a target as an absolute path; a URL stays unchanged."""
    return target if "://" in target else os.path.abspath(target)


def failure(error: Exception) -> PubsubError:
    """Return Spark's error as one sentence: the error in a Python worker's traceback, or the first line of its text.

    Errors of Spark Connect have the same text.
    """
    if isinstance(error, PubsubError):
        return error
    text = str(error)
    found = _RAISED.findall(text)
    if found:
        path, said = found[-1]
        code = _exit_code(path)
        return PipelineFailed(said, code, transient=code == Unavailable.exit_code)
    if isinstance(error, Py4JNetworkError):
        return PipelineFailed(f"Spark's Java process has ended ({' '.join(text.split()) or 'no reason is known'})")
    _, traceback, rest = text.partition("Traceback (most recent call last)")
    raised = _PYTHON.findall(rest) if traceback else []
    return PipelineFailed(raised[-1] if raised else cause(error), transient=_WORKER.search(text) is not None)


def _exit_code(path: str) -> int:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return 1
    return int(getattr(found, "exit_code", 1))


def identify(
    spark: SparkSession | None, checkpoint: str, name: str, default: str, facts: Mapping[str, Any], directory: str = ""
) -> str:
    """Return the name of a checkpoint's pipeline; a new checkpoint gets the name and stores it.

    So a directory may be moved and topics may be added, and the subscription stays the same.

    Args:
        spark: for other file systems than this machine's.
        name: the given name; "" for none.
        default: name of a new checkpoint without a given name.
        facts: values that the checkpoint's state depends on.
        directory: the target, if it is a directory.

    Raises:
        ConfigurationError: the checkpoint belongs to another pipeline.
    """
    if directory:
        _check_target(spark, directory, checkpoint)
    storage = open_storage(spark, checkpoint)
    wanted = dict(facts)
    if not storage.has(IDENTITY):
        storage.write(IDENTITY, json.dumps(wanted | {"name": name or default}))
        return name or default
    held = json.loads(storage.read(IDENTITY))
    if name:
        wanted["name"] = name
    for word, value in wanted.items():
        if held.get(word) != value:
            raise ConfigurationError(
                f"{checkpoint} belongs to a pipeline with {word} {_said(held.get(word))}, not {_said(value)}:"
                " give another target, or --checkpoint"
            )
    return str(held["name"])


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "not given")


def _check_target(spark: SparkSession | None, target: str, checkpoint: str) -> None:
    """Check that a directory is empty or belongs to this checkpoint's pipeline.

    If the directory has batch numbers that a new or older checkpoint does not know, Spark would skip and lose those
    batches.

    Raises:
        ConfigurationError: the directory belongs to another pipeline.
    """
    names = open_storage(spark, target).names()
    held = [name for name in names if not name.startswith(".") and f"{target}/{name}" != checkpoint]
    if held and not open_storage(spark, checkpoint).has("metadata"):
        raise ConfigurationError(
            f"{target} is not empty and {checkpoint} is not its checkpoint: give an empty directory, or --checkpoint"
        )
    begun = _newest(spark, f"{checkpoint}/offsets")
    if any(_newest(spark, f"{target}/{log}") > begun for log in (LOG, f"{CLOSED}/{LOG}")):
        raise ConfigurationError(
            f"{target} has batches that {checkpoint} does not know; that is an older copy, or is not its checkpoint:"
            " give an empty directory, or --checkpoint"
        )


def _newest(spark: SparkSession | None, log: str) -> int:
    """Return the highest batch number in a log of Spark's; -1 if it is empty."""
    names = (name.removesuffix(COMPACT) for name in open_storage(spark, log).names())
    return max((int(name) for name in names if name.isdigit()), default=-1)


def hold(place: Place, topics: Sequence[str], name: str) -> None:
    """Subscribe at once, so that the service keeps stored and new messages while Spark starts.

    Raises:
        Unavailable: no answer came.
        KeyRefused, NotAllowed: see `Proxies.ask`.
    """
    with place.identity.connect(place.proxies, place.timeout) as link:
        for topic in topics:
            Topics(link, name).subscribe(topic, "earliest")


def source(
    spark: SparkSession, place: Place, topics: Sequence[str], name: str, records: int, columns: str = SCHEMA,
    written: Sequence[str] = (),
) -> DataFrame:  # fmt: skip
    """Return topics as a stream that begins with the stored messages.

    A source in Python does not see the cluster, so its number of tasks for a batch is given to it.

    Args:
        name: name of the durable subscription.
        records: maximum records of one micro-batch; 0 for no limit.
        columns: the schema; each column that is left out saves time.
        written: the directories that the query writes, its checkpoint too; local ones are on the disk before records
            are acknowledged.
    """
    options = {"subscribe": ",".join(topics), "subscription": name, "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": str(records)} | place.options
    options |= {"defaultPartitions": str(spark.sparkContext.defaultParallelism)}
    options |= {"takeOver": "true"} if place.take_over else {}
    local = [complete_path(path) for path in written if path and is_local(path)]
    options |= {"syncDirectories": json.dumps(local)} if local else {}
    return spark.readStream.format("pubsub").schema(columns).options(**options).load()


def check_names(topics: Sequence[str], name: str) -> None:
    """Check the names of topics and of the pipeline before anything is started.

    Raises:
        InvalidName: a name is not valid.
    """
    for topic in topics:
        check_topic(topic)
        if "," in topic:
            raise ConfigurationError(
                f"topic {topic} has a comma in its name, and Spark's option separates topics by commas"
            )
    check_id("pipeline name", name)


def begin(writer: DataStreamWriter, name: str, checkpoint: str, *, once: bool, seconds: float) -> StreamingQuery:
    """Start a query: over the messages stored now, or until it is stopped with a batch at this interval."""
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds:g} seconds")
    return writer.start()


def follow(query: StreamingQuery, tell: Callable[[Totals], None], stop: Callable[[], bool] = lambda: False) -> Totals:
    """Wait until a query ends.

    Args:
        tell: called after each batch.
        stop: returns True if the query is to end now; the next run repeats its unfinished batch.

    Raises:
        PubsubError: the query failed.
    """
    totals, begun, known = Totals(), time.monotonic(), -1
    try:
        while True:
            ended = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]  # fractions are allowed
            for batch in query.recentProgress:
                if batch["batchId"] > known:
                    known = batch["batchId"]
                    add_progress(totals, batch)
                    totals.seconds = time.monotonic() - begun
                    tell(totals)
            if ended:
                break
            if stop():
                query.stop()
    except (StreamingQueryException, Py4JError) as error:
        raise failure(error) from error
    totals.seconds = time.monotonic() - begun
    return totals


def add_progress(totals: Totals, batch: Any) -> None:
    """Add the progress of one batch, as Spark reports it."""
    totals.batches += 1 if batch["numInputRows"] else 0
    totals.messages += batch["numInputRows"]
    totals.late += sum(state["numRowsDroppedByWatermark"] for state in batch["stateOperators"])
    for row in (batch["observedMetrics"] or {}).values():
        for name, value in row.asDict().items():
            totals.observed[name] = totals.observed.get(name, 0) + int(value)
