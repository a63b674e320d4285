"""The rollup of `pubsub pipeline`: one query that counts, and its final treatment of windows that have not ended."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pubsub.cli.running import checkpoint_of, figures, progress, sentence, session, stopping
from pubsub.errors import CallerError, ConfigurationError
from pubsub.spark import pipelines
from pubsub.spark import rollup as rolling
from pubsub.spark.storage import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pubsub.spark.pipelines import Place


@dataclass(frozen=True)
class Counting:
    """Topic, target and options of a rollup; the fields are the command's options."""

    topic: str
    to: str
    window: str
    by: tuple[str, ...]
    time: str
    watermark: str
    plot: str
    with_open: bool
    once: bool
    every: float
    batch: int

    @property
    def in_files(self) -> bool:
        """True if the counts go to a directory, False if they go to a topic."""
        return "/" in self.to

    def run(
        self, place: Place, settings: dict[str, str], master: str, name: str, checkpoint: str
    ) -> tuple[dict[str, Any], str]:
        """Count until stopped, or once.

        Returns:
            The results for JSON, and a sentence for a person.
        """
        what = rolling.Rollup(window=self.window, by=self.by, time=self.time, late=self.watermark)
        target = pipelines.complete_path(self.to) if self.in_files else self.to
        directory = target if self.in_files else ""
        default = pipelines.default_name("rollup", self.topic, self.window, *what.by, self.time, target)
        pipelines.check_names([self.topic, *([] if self.in_files else [self.to])], name or default)
        if self.plot:
            _can_plot(self.plot)
        checkpoint = checkpoint_of(checkpoint, directory, name or default, master)
        whose = {
            "pipeline": "rollup", "topic": self.topic, "window": self.window, "by": list(what.by), "time": self.time,
        }  # fmt: skip
        local = is_local(checkpoint) and is_local(directory)
        if local:
            name = pipelines.identify(None, checkpoint, name, default, whose, directory)
            pipelines.hold(place, [self.topic], name)
        with session(master, settings) as spark, progress("rollup") as tell, stopping() as stop:
            if not local:
                name = pipelines.identify(spark, checkpoint, name, default, whose, directory)
            picture = f"{name}.plot"[-64:]
            if self.plot and not self.in_files:
                pipelines.hold(place, [self.to], picture)
            start = rolling.to_directory if self.in_files else rolling.to_topic
            query = start(
                spark, place, self.topic, target, what,
                name=name, checkpoint=checkpoint, once=self.once, seconds=self.every, records=self.batch,
            )  # fmt: skip
            totals = pipelines.follow(query, tell, stop)
            still_open = what.open_windows(spark, checkpoint)
            facts = {
                "pipeline": "rollup", "topic": self.topic, "to": self.to, "name": name, "checkpoint": checkpoint,
                **figures(totals), "untimed": totals.observed.get("untimed", 0), "late": totals.late,
                "open": 0 if still_open is None else still_open.count(),
            }  # fmt: skip
            if still_open is not None:
                self._leave(spark, place, still_open, target, query.id, checkpoint)
                if self.plot:
                    self._draw(spark, place, what, still_open, target, picture)
        return facts, self._said(sentence(totals), facts)

    def _leave(
        self, spark: SparkSession, place: Place, still_open: DataFrame, target: str, query: str, checkpoint: str
    ) -> None:
        """Write the windows that have not ended to the directory or the topic."""
        if self.in_files:
            rolling.write_open(still_open, target)
        elif self.with_open:
            rolling.put_open(still_open, place, self.to, query, checkpoint)

    def _draw(
        self, spark: SparkSession, place: Place, what: rolling.Rollup, still_open: DataFrame, target: str, picture: str
    ) -> None:
        """Draw all counts. `picture` is the name under which a topic's counts are read back."""
        from pubsub.spark.picture import draw

        closed = (
            spark.read.schema(what.schema()).parquet(f"{target}/closed")
            if self.in_files
            else rolling.closed_in_topic(spark, place, self.to, what, picture)
        )
        title = f"{self.topic}: messages by {' and '.join(what.by) or 'time'}, windows of {self.window}"
        draw(rolling.series(closed.unionByName(still_open), what.by), title, self.plot)

    def _said(self, run: str, facts: dict[str, Any]) -> str:
        said = f"{run} counted to {self.to}; {facts['open']:,} counts are of windows that have not ended"
        for number, why in ((facts["untimed"], "have no time"), (facts["late"], "counts were too late")):
            said += f"; {number:,} {why} and are left out" if number else ""
        return said


def _can_plot(file: str) -> None:
    if find_spec("matplotlib") is None:
        raise ConfigurationError("--plot needs matplotlib: pip install '.[plot]' in a clone")
    folder = Path(file).absolute().parent
    if not folder.is_dir() or Path(file).suffix not in {".png", ".svg", ".pdf"}:
        raise CallerError(f"--plot {file}: give a .png, .svg or .pdf file in a directory that exists")
