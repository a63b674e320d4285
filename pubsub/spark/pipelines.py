"""Pipelines that people run: each a few lines over the source and the sink, and what they share.

A pipeline has a name, under which it is subscribed, and a checkpoint, where Spark keeps how far it is. The two belong
together: with both a killed run goes on where it was, each message once.
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

from pubsub.errors import ConfigurationError, PubsubError
from pubsub.protocol.names import check_id, check_topic
from pubsub.spark.datasource import PubsubDataSource
from pubsub.spark.identity import NOBODY, Identity
from pubsub.spark.ranges import Topics
from pubsub.spark.session import cause, start
from pubsub.spark.storage import open_storage

IDENTITY: Final = "pipeline.json"
"""In a checkpoint: whose it is."""

LOG: Final = "_spark_metadata"
"""In a directory that Spark writes files to: which of them count, by batch."""

COMPACT: Final = ".compact"
"""Ends the name of a batch in that log which lists all before it, too."""

CLOSED: Final = "closed"
"""In a rollup's directory: where the windows go that are over."""

POLL_SECONDS: Final = 0.2
_RAISED: Final = re.compile(r"^(pubsub(?:\.\w+)+): (.+)$", re.MULTILINE)


class PipelineFailed(PubsubError):
    """A query ended by an error; `exit_code` is that of the error where it is one of ours."""

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason, exit_code)

    def __str__(self) -> str:
        return self.reason


@contextmanager
def running(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Spark, for the time of a `with` block; a session that this process has already is used, and stays.

    Args:
        master, conf: see `session.start`.

    Raises:
        PubsubError: whatever Spark complains of in the block, as one sentence.
    """
    own = SparkSession.getActiveSession() is None
    spark = start(master, conf)
    if own and not os.environ.get("PUBSUB_TRACEBACK"):
        spark.sparkContext.setLogLevel("OFF")  # A query that fails is said in one sentence.
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
    """Where a pipeline reads and writes messages.

    Attributes:
        proxies: addresses of the proxies' client side.
        timeout: seconds after which a request that nobody settles ends the query.
        identity: who asks, and by which keys.
        take_over: whether a stream goes on under a subscription that belongs to another checkpoint.
    """

    proxies: tuple[str, ...]
    timeout: float = 30.0
    identity: Identity = NOBODY
    take_over: bool = False

    @property
    def options(self) -> dict[str, str]:
        """As options of source and sink."""
        return {"proxies": ",".join(self.proxies), "timeout": f"{self.timeout:g}"} | self.identity.options


@dataclass
class Totals:
    """What a run did so far.

    Attributes:
        batches, messages: of this run.
        seconds: since it began.
        observed: sums of what the query observes, by name.
        late: groups of rows that were left out because their window was over.
    """

    batches: int = 0
    messages: int = 0
    seconds: float = 0.0
    late: int = 0
    observed: dict[str, int] = field(default_factory=dict)


def default_name(kind: str, *parts: str) -> str:
    """A pipeline's name where none is given: the same for the same topics and target, and nobody else's."""
    return f"{kind}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def whole_path(target: str) -> str:
    """A target as the same text from every working directory; what has a scheme is as it is."""
    return target if "://" in target else os.path.abspath(target)


def failure(error: Exception) -> PubsubError:
    """Spark's error as one sentence: ours, from the traceback that it carries, or the first line of its own."""
    if isinstance(error, PubsubError):
        return error
    text = str(error)
    found = _RAISED.findall(text)
    if found:
        path, said = found[-1]
        return PipelineFailed(said, _exit_code(path))
    if isinstance(error, Py4JNetworkError):
        return PipelineFailed(f"Spark's Java process has ended ({' '.join(text.split()) or 'no reason is known'})")
    return PipelineFailed(cause(error))


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
    """The name of the pipeline that a checkpoint is of; for a fresh one it is written there.

    So a directory may be moved, and topics added: what it is subscribed as stays.

    Args:
        spark: knows other file systems than this machine's.
        name: as it was given; "": it was not.
        default: for a fresh checkpoint without a name.
        facts: what the checkpoint's state depends on.
        directory: the target, where it is one.

    Raises:
        ConfigurationError: it is another pipeline's.
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
                f"{checkpoint} is of a pipeline whose {word} is {_said(held.get(word))}, not {_said(value)}:"
                " name another target, or --checkpoint"
            )
    return str(held["name"])


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "not given")


def _check_target(spark: SparkSession | None, target: str, checkpoint: str) -> None:
    """See that a directory is empty, or that of the pipeline whose checkpoint this is.

    Spark would skip the batches of a fresh or older checkpoint whose numbers the directory knows, which loses them.

    Raises:
        ConfigurationError: it is another's.
    """
    names = open_storage(spark, target).names()
    held = [name for name in names if not name.startswith(".") and f"{target}/{name}" != checkpoint]
    if held and not open_storage(spark, checkpoint).has("metadata"):
        raise ConfigurationError(
            f"{target} is not empty and {checkpoint} is no checkpoint of it: name an empty directory, or --checkpoint"
        )
    begun = _newest(spark, f"{checkpoint}/offsets")
    if any(_newest(spark, f"{target}/{log}") > begun for log in (LOG, f"{CLOSED}/{LOG}")):
        raise ConfigurationError(
            f"{target} has batches that {checkpoint} does not know, which is an older copy, or is no checkpoint of it:"
            " name an empty directory, or --checkpoint"
        )


def _newest(spark: SparkSession | None, log: str) -> int:
    """The highest number of a batch in a log of Spark's; -1 where there is none."""
    names = (name.removesuffix(COMPACT) for name in open_storage(spark, log).names())
    return max((int(name) for name in names if name.isdigit()), default=-1)


def hold(place: Place, topics: Sequence[str], name: str) -> None:
    """Subscribe, so that the service keeps what is stored, and what comes, while Spark still starts.

    Raises:
        Unavailable: nobody answers.
        NotLetIn, NotAllowed: see `Proxies.ask`.
    """
    with place.identity.connect(place.proxies, place.timeout) as link:
        for topic in topics:
            Topics(link, name).subscribe(topic, "earliest")


def source(spark: SparkSession, place: Place, topics: Sequence[str], name: str, records: int) -> DataFrame:
    """Topics as a stream, from what is stored on.

    Args:
        name: of the durable subscription.
        records: of one micro-batch, at most; 0: no limit.
    """
    options = {"subscribe": ",".join(topics), "subscription": name, "startingOffsets": "earliest"}
    options |= {"maxRecordsPerBatch": str(records)} | place.options
    options |= {"takeOver": "true"} if place.take_over else {}
    return spark.readStream.format("pubsub").options(**options).load()


def check_names(topics: Sequence[str], name: str) -> None:
    """See that topics and a pipeline's name are such, before anything is started.

    Raises:
        InvalidName: one is not.
    """
    for topic in topics:
        check_topic(topic)
        if "," in topic:
            raise ConfigurationError(f"topic {topic} has a comma in its name, which Spark's option cannot have")
    check_id("pipeline name", name)


def begin(writer: DataStreamWriter, name: str, checkpoint: str, *, once: bool, seconds: float) -> StreamingQuery:
    """Start a query: for what there is now, or until it is stopped, a batch each so many seconds."""
    writer = writer.queryName(name).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds:g} seconds")
    return writer.start()


def follow(query: StreamingQuery, tell: Callable[[Totals], None], stop: Callable[[], bool] = lambda: False) -> Totals:
    """Wait until a query ends.

    Args:
        tell: called after each batch.
        stop: whether it is to end now; what a batch has not finished by then is done again by the next run.

    Raises:
        PubsubError: it failed.
    """
    totals, begun, known = Totals(), time.monotonic(), -1
    try:
        while True:
            ended = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]  # it takes fractions
            for batch in query.recentProgress:
                if batch["batchId"] > known:
                    known = batch["batchId"]
                    _add(totals, batch)
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


def _add(totals: Totals, batch: Any) -> None:
    totals.batches += 1 if batch["numInputRows"] else 0
    totals.messages += batch["numInputRows"]
    totals.late += sum(state["numRowsDroppedByWatermark"] for state in batch["stateOperators"])
    for row in (batch["observedMetrics"] or {}).values():
        for name, value in row.asDict().items():
            totals.observed[name] = totals.observed.get(name, 0) + int(value)
