"""An archive put back into a topic: day by day, in the order in which its messages were taken, each message once.

What is to be put is written down before the first of it is: a plan lists the files of each step. A step is a batch of
a sink whose name no other run has, so one that was killed is done again and found done, whatever the archive has got
since; that is for the next plan. Spark's own source of files cannot do it: it has no order.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pubsub.errors import ConfigurationError
from pubsub.protocol.names import topic_of
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.pipelines import Place, Storage, Totals

ORDER: Final = ("stamp", "topic", "log", "offset")
"""Stamps rise along a topic whatever servers it was on; the records of one put have one stamp."""

LOG: Final = "_spark_metadata"
_COMPACT: Final = ".compact"


def archived_files(spark: SparkSession, directory: str) -> list[str]:
    """The files of an archive that count, below its directory; as its log lists them, wherever it was moved since.

    Raises:
        ConfigurationError: it is no archive.
    """
    log = Storage(spark, f"{directory}/{LOG}")
    numbers = {int(name.removesuffix(_COMPACT)): name for name in log.names() if name.removesuffix(_COMPACT).isdigit()}
    if not numbers:
        raise ConfigurationError(f"{directory} is no archive: it has no {LOG} that lists its files")
    compacted = max((number for number, name in numbers.items() if name.endswith(_COMPACT)), default=0)
    found = []
    for number in sorted(numbers):
        if number >= compacted:
            for line in log.read(numbers[number]).splitlines()[1:]:  # The first is the version.
                found.append(_below(unquote(json.loads(line)["path"])))
    return found


def _below(path: str) -> str:
    """`topic=…/date=…/name` of a whole path."""
    return "/".join(path.split("/")[-3:])


def topic_and_date(file: str) -> tuple[str, str]:
    """What the folders of an archived file say."""
    topic, date, _ = file.split("/")
    return topic_of(topic.removeprefix("topic=")), date.removeprefix("date=")


class Journal:
    """What a replay is going to do, and has done.

    Args:
        storage: of its directory.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.plans: list[dict[str, Any]] = []
        self._done = 0
        for name in storage.names():
            if name.startswith("plan-"):
                self.plans.append(json.loads(storage.read(name)))
            elif name.startswith("done-"):
                self._done = max(self._done, int(name.removeprefix("done-")))

    @property
    def run(self) -> str:
        """The name that no other run has."""
        return str(self.plans[0]["run"])

    def waiting(self) -> list[tuple[int, list[str]]]:
        """Number and files of each step that is not done, as far as we know."""
        steps = [step for plan in self.plans for step in plan["steps"]]
        return [(number, steps[number]) for number in range(self._done, len(steps))]

    def plan(self, files: Sequence[str]) -> None:
        """Add a step for each date of those files that are in no plan yet."""
        known = {file for plan in self.plans for step in plan["steps"] for file in step}
        dates: dict[str, list[str]] = {}
        for file in sorted(set(files) - known):
            dates.setdefault(topic_and_date(file)[1], []).append(file)
        if not dates:
            return
        made = {
            "run": self.plans[0]["run"] if self.plans else uuid.uuid4().hex,
            "steps": [dates[d] for d in sorted(dates)],
        }
        self._storage.write(f"plan-{len(self.plans):08}", json.dumps(made))
        self.plans.append(made)

    def done(self, number: int) -> None:
        """Note that a step, and so all before it, is done."""
        self._storage.write(f"done-{number + 1}", "")
        self._done = number + 1


def messages(spark: SparkSession, directory: str, files: Sequence[str]) -> DataFrame:
    """The messages in some files of an archive."""
    reader = spark.read.schema(f"{SCHEMA}, date string").option("basePath", directory)
    return reader.parquet(*(f"{directory}/{file}" for file in files))


def replay(
    spark: SparkSession,
    place: Place,
    directory: str,
    to: str,
    *,
    topics: Sequence[str] = (),
    checkpoint: str,
    tell: Callable[[Totals], None],
    stop: Callable[[], bool] = lambda: False,
) -> Totals:
    """Put an archive's messages to a topic, those that were not put by an earlier run with this checkpoint.

    Args:
        topics: of the archive; none: all.
        tell: called after each step.
        stop: whether to end before the next.

    Raises:
        ConfigurationError: it is no archive, or does not have a topic.
    """
    totals, begun = Totals(), time.monotonic()
    files = archived_files(spark, directory)
    held = {topic_and_date(file)[0] for file in files}
    for topic in topics:
        if topic not in held:
            raise ConfigurationError(f"{directory} has no topic {topic}; it has {', '.join(sorted(held)) or 'none'}")
    journal = Journal(Storage(spark, checkpoint))
    journal.plan([file for file in files if not topics or topic_and_date(file)[0] in topics])
    for number, step in journal.waiting():
        if stop():
            break
        rows = messages(spark, directory, step)
        options = {"topic": to, "sink": f"replay-{journal.run}", "batchId": str(number)} | place.options
        chosen = rows.orderBy(*map(F.col, ORDER)).select("value", "key")
        chosen.write.format("pubsub").options(**options).mode("append").save()
        journal.done(number)
        totals.messages += rows.count()
        totals.batches += 1
        totals.seconds = time.monotonic() - begun
        tell(totals)
    totals.seconds = time.monotonic() - begun
    return totals
