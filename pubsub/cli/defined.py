"""The pipelines of `pubsub pipeline run` and `archive`: one definition, its queries, and its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from pubsub.cli.replaying import Replayed
from pubsub.cli.running import checkpoint_of, figures, progress, sentence, session, stopping
from pubsub.errors import CallerError
from pubsub.metrics.snapshot import Gauge, Snapshot
from pubsub.spark import archive as archiving
from pubsub.spark import defined, pipelines
from pubsub.spark.pipeline_file.definition import DEAD, Definition
from pubsub.spark.pipeline_file.tables import Problems
from pubsub.spark.storage import is_local
from pubsub.spark.supervising import Restarts, Supervision

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pubsub.errors import PubsubError
    from pubsub.metrics.serving import Metrics
    from pubsub.spark.pipelines import Place, Totals

UNPARSED: Final = "unparsed"
"""Folder in a checkpoint of the query that writes unparsed messages, and the end of its subscription's name."""


def check_file(made: Definition, file: str, master: str = "local[1]") -> None:
    """Check a definition's expressions with Spark, on no rows.

    Raises:
        PipelineFileRefused: one of them is wrong.
    """
    with session(master, {}) as spark:
        defined.check_all(spark, made, file)


@dataclass
class Defined:
    """One run of a definition.

    Args:
        file: its file, "" for the command `archive`.
        place: the cluster.
        once: end when the present messages are processed.
        metrics: HOST:PORT of the metrics, "" for none; insecure: allow other hosts.
    """

    made: Definition
    file: str
    place: Place
    once: bool
    metrics: str = ""
    insecure: bool = False

    def run(self) -> tuple[dict[str, Any], str]:
        """Run until stopped, or once.

        Returns:
            The results for JSON, and a sentence for a person.

        Raises:
            PubsubError: it cannot start, or a query failed.
        """
        to, made = self.made.target.directory or self.made.target.topic, self._complete(self.made)
        self.made = made
        directory, kind = made.target.directory, "archive" if self._is_archive else "run"
        default = self._default_name(kind)
        pipelines.check_names([*made.topics, *filter(None, [made.target.topic])], made.run.name or default)
        if directory:
            archiving.check_format(made.target.form, directory)
        checkpoint = checkpoint_of(made.run.checkpoint, directory, made.run.name or default, made.run.master)
        # A file is checked with Spark before anything is subscribed.
        early = is_local(checkpoint) and is_local(directory) and not self.file
        name = self._identify(None, checkpoint, default) if early else ""
        pages_of, start = self._pages(name or default), session(made.run.master, made.run.conf)
        with pages_of as pages, start as spark, progress(kind) as tell:
            if self.file:
                defined.check_all(spark, made, self.file)
            name = name or self._identify(spark, checkpoint, default)
            with stopping() as stop:
                restarts = Restarts(made.run.restarts)
                totals = Supervision(
                    lambda: self._start(spark, name, checkpoint), tell, stop,
                    lambda totals: _give(pages, name, totals, restarts), _failed, restarts,
                ).run()  # fmt: skip
            if directory:
                archiving.tidy(spark, directory, checkpoint)
        facts: dict[str, Any] = {"pipeline": kind, "topics": list(made.topics), "to": to, "name": name}
        return self._said(facts | {"checkpoint": checkpoint}, totals, restarts)

    @property
    def _is_archive(self) -> bool:
        return self.made.archives and bool(self.made.target.directory)

    def _complete(self, made: Definition) -> Definition:
        if not made.target.directory:
            return made
        return replace(made, target=replace(made.target, directory=pipelines.complete_path(made.target.directory)))

    def _default_name(self, kind: str) -> str:
        target = self.made.target
        if self._is_archive:
            return pipelines.default_name(kind, target.directory)
        return pipelines.default_name(kind, Path(self.file).stem, target.directory or target.topic)

    def _identify(self, spark: SparkSession | None, checkpoint: str, default: str) -> str:
        """Return the pipeline's name from its checkpoint, and subscribe under it."""
        made = self.made
        facts: dict[str, Any] = {"pipeline": "archive" if self._is_archive else "run"}
        if not self._is_archive:
            window = made.window
            facts["to"] = made.target.topic or "a directory"
            values = [f"{name}={text}" for name, text in window.values.items()] if window else []
            facts["window"] = [window.length, window.time, *window.by, *values] if window else []
        name = pipelines.identify(spark, checkpoint, made.run.name, default, facts, made.target.directory)
        pipelines.hold(self.place, made.topics, name)
        if made.parse is not None and made.parse.unparsed == DEAD:
            pipelines.hold(self.place, made.topics, unparsed_name(name))
        return name

    @contextmanager
    def _pages(self, name: str) -> Iterator[Metrics | None]:
        if not self.metrics:
            yield None
            return
        from pubsub.metrics.serving import Metrics, said

        pages = Metrics(self.metrics, lambda: None, insecure=self.insecure)
        try:
            typer.echo(f"pipeline {name}{said(pages)}", err=True)
            pages.handover.started = True
            yield pages
        finally:
            pages.close()

    def _start(self, spark: SparkSession, name: str, checkpoint: str) -> Sequence[StreamingQuery]:
        made, place = self.made, self.place
        if made.target.directory:
            archiving.tidy(spark, made.target.directory, checkpoint)
        when = {"once": self.once, "seconds": made.run.every}
        written = (made.target.directory, checkpoint)
        rows = pipelines.source(spark, place, made.topics, name, made.run.batch, defined.columns_read(made), written)
        found = defined.result(rows, made, Problems())
        writer = defined.target_writer(spark, found, made, place)
        queries = [pipelines.begin(writer, name, checkpoint, **when)]  # type: ignore[arg-type]
        if made.parse is not None and made.parse.unparsed == DEAD:
            other = unparsed_name(name)
            rows = pipelines.source(spark, place, made.topics, other, made.run.batch, defined.AS_PUT, (checkpoint,))
            writer = defined.to_topic(defined.unparsed(rows, made.parse), made.parse.dead_topic, place)
            try:
                queries.append(pipelines.begin(writer, other, f"{checkpoint}/{UNPARSED}", **when))  # type: ignore[arg-type]
            except Exception:
                queries[0].stop()
                raise
        return queries

    def _said(self, facts: dict[str, Any], totals: Totals, restarts: Restarts) -> tuple[dict[str, Any], str]:
        facts = facts | figures(totals)
        text = f"{sentence(totals)} {'archived' if self._is_archive else 'written'} to {facts['to']}"
        if self.file:
            counts = counts_of(totals, restarts)
            facts |= {each: counts[each] for each in ("unparsed", "untimed", "late", "restarts")}
            for number, why in (
                (counts["unparsed"], "do not have the fields"),
                (counts["untimed"], "have no time"),
                (counts["late"], "rows were too late"),
            ):
                text += f"; {number:,} {why}" if number else ""
        return facts, text


def run_file(
    made: Definition, file: str, place: Place, *, once: bool, metrics: str, insecure: bool
) -> tuple[dict[str, Any], str]:
    """Run the definition of a file, a stream or a replay; see `Defined.run`."""
    if not made.archive:
        return Defined(made, file, place, once, metrics, insecure).run()
    if metrics:
        raise CallerError("--metrics: a replay of source.archive has none")
    return Replayed(made, file, place).run()


def unparsed_name(name: str) -> str:
    """Return the name of the subscription of a pipeline's second query."""
    return f"{name}.{UNPARSED}"[-64:]


def counts_of(totals: Totals, restarts: Restarts) -> dict[str, int]:
    """Return the counters of a run."""
    return {
        "messages": totals.messages,
        "batches": totals.batches,
        "unparsed": totals.observed.get("unparsed", 0),
        "untimed": totals.observed.get("untimed", 0),
        "late": totals.late,
        "restarts": restarts.count,
    }


def _give(pages: Metrics | None, name: str, totals: Totals, restarts: Restarts) -> None:
    if pages is not None and pages.handover.wanted:
        gauges = (Gauge("run_seconds", "Seconds since the start, at the last completed batch.", totals.seconds),)
        pages.handover.give(Snapshot("pipeline", name, "", counts_of(totals, restarts), gauges))


def _failed(error: PubsubError, pause: float) -> None:
    typer.echo(f"pubsub: the pipeline failed and starts again in {pause:.0f} s: {error}", err=True)
