"""Puts an archive into a topic: day by day, in the order of the server's timestamps, each message once.

A plan with the files of each step is stored before the first put. A step is one batch of a sink with a unique name. A
killed step is repeated and recognized as done, even if the archive has new files; these are for the next plan. Spark's
own file source cannot do this, because it has no order.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from pubsub.errors import ConfigurationError
from pubsub.spark.archive import archived_files, messages, topic_and_date
from pubsub.spark.pipelines import Place, Totals, identify
from pubsub.spark.storage import Storage, open_storage

ORDER: Final = ("stamp", "topic", "log", "offset")
"""Timestamps rise along a topic on any server; the records of one put share one timestamp."""


class Journal:
    """The steps of a replay, planned and done.

    Args:
        storage: directory of the journal.
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
        """The unique name of the run."""
        return str(self.plans[0]["run"])

    def waiting(self) -> list[tuple[int, list[str]]]:
        """Return number and files of each step that is not done, as far as known."""
        steps = [step for plan in self.plans for step in plan["steps"]]
        return [(number, steps[number]) for number in range(self._done, len(steps))]

    def plan(self, files: Sequence[str]) -> None:
        """Add a step for each date of the files that are in no plan yet."""
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
        """Record that a step, and so every earlier step, is done."""
        self._storage.write(f"done-{number + 1}", "")
        self._done = number + 1


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
    made_of: Callable[[DataFrame], DataFrame] = lambda rows: rows.select("value", "key"),
) -> Totals:
    """Put an archive's messages to a topic, except those that an earlier run with this checkpoint has put.

    Args:
        topics: topics of the archive; empty for all.
        tell: called after each step.
        stop: returns True to end before the next step.
        made_of: returns the messages that are put for rows of the archive, in their order.

    Raises:
        ConfigurationError: the directory is not an archive, lacks a topic, or the checkpoint belongs to another
            pipeline.
    """
    totals, begun = Totals(), time.monotonic()
    files = archived_files(spark, directory)
    held = {topic_and_date(file)[0] for file in files}
    for topic in topics:
        if topic not in held:
            raise ConfigurationError(f"{directory} has no topic {topic}; it has {', '.join(sorted(held)) or 'none'}")
    identify(spark, checkpoint, "", "replay", {"pipeline": "replay", "to": to})
    journal = Journal(open_storage(spark, checkpoint))
    journal.plan([file for file in files if not topics or topic_and_date(file)[0] in topics])
    for number, step in journal.waiting():
        if stop():
            break
        rows = messages(spark, directory, step)
        options = {"topic": to, "sink": f"replay-{journal.run}", "batchId": str(number)} | place.options
        chosen = made_of(rows.orderBy(*map(F.col, ORDER)))
        chosen.write.format("pubsub").options(**options).mode("append").save()
        journal.done(number)
        totals.messages += rows.count()
        totals.batches += 1
        totals.seconds = time.monotonic() - begun
        tell(totals)
    totals.seconds = time.monotonic() - begun
    return totals
