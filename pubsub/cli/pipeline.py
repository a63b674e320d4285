"""`pubsub pipeline …`: what people run on Spark. Each command is one query, and says how far it is."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.config.settings import ClientSettings
from pubsub.console.options import read
from pubsub.errors import CallerError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub.spark.pipelines import Place, Totals

TELL_SECONDS: Final = 10.0
"""Between two lines of progress where nobody watches a terminal."""

app = typer.Typer(name="pipeline", rich_markup_mode=None, pretty_exceptions_enable=False)

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="Under which it is subscribed; else made of its target.")]
Once = Annotated[bool, typer.Option("--once", help="Do what there is now, then end; else go on until stopped.")]
Every = Annotated[float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="From one batch to the next.")]
Batch = Annotated[int, typer.Option(min=0, max=10**12, metavar="N", help="Messages of a batch at most; 0: no limit.")]
Checkpoint = Annotated[str, typer.Option(metavar="DIR", help="Where Spark keeps how far it is.")]
Master = Annotated[str, typer.Option(metavar="MASTER", help="Spark's master: local[4], spark://HOST:7077, yarn …")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
Timeout = Annotated[float, typer.Option(min=0.05, max=86_400, metavar="SECONDS", help="For one request.")]
Proxies = Annotated[list[str] | None, typer.Option("--proxy", metavar="ADDR", help="Address of a proxy.")]
ProxiesFile = Annotated[str | None, typer.Option(metavar="FILE", help="File that lists the proxies.")]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with settings.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def pipeline() -> None:
    """Archive topics, put archives back, count messages, on Spark (docs/spark.md)."""


@app.command()
def archive(
    topics: Topics,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Where the Parquet files go.")],
    once: Once = False,
    every: Every = 10.0,
    batch: Batch = 1_000_000,
    name: Name = "",
    checkpoint: Checkpoint = "",
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write topics to Parquet files, by topic and date, each message once, killed or not.

    It begins with what is stored, and from then on the service keeps for it what it has not archived yet.
    """
    place, settings = where(proxies, proxies_file, config, timeout), spark_settings(master, conf)
    from pubsub.spark import archive as archiving
    from pubsub.spark import pipelines
    from pubsub.spark.storage import is_local

    target = pipelines.whole_path(to)
    default = pipelines.default_name("archive", target)
    pipelines.check_names(topics, name or default)
    checkpoint = pipelines.whole_path(checkpoint) if checkpoint else f"{target}/_checkpoint"
    local = is_local(checkpoint) and is_local(target)
    whose = {"pipeline": "archive"}
    if local:
        name = pipelines.identify(None, checkpoint, name, default, whose, target)
        pipelines.hold(place, topics, name)
    with session(master, settings) as spark, progress("archive") as tell, stopping() as stop:
        if not local:
            name = pipelines.identify(spark, checkpoint, name, default, whose, target)
        query = archiving.archive(
            spark, place, topics, target, name=name, checkpoint=checkpoint, once=once, seconds=every, records=batch
        )
        totals = pipelines.follow(query, tell, stop)
        archiving.tidy(spark, target)
    facts = {"pipeline": "archive", "topics": topics, "to": to, "name": name, "checkpoint": checkpoint}
    console.report(as_json, facts | figures(totals), f"{sentence(totals)} archived to {to}")


@app.command()
def replay(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="An archive.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where its messages go.")],
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic of it; may be repeated.")
    ] = None,
    checkpoint: Checkpoint = "",
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Put an archive's messages to a topic, in the order in which they were taken, each once, killed or not.

    Run again, it puts what the archive got since; with another --checkpoint it puts everything again.
    """
    place, settings = where(proxies, proxies_file, config, timeout), spark_settings(master, conf)
    from pubsub.protocol.names import check_new_topic, file_name
    from pubsub.spark import pipelines
    from pubsub.spark import replay as replaying

    check_new_topic(to)
    source = pipelines.whole_path(directory)
    checkpoint = pipelines.whole_path(checkpoint) if checkpoint else f"{source}/_replay/{file_name(to)}"
    with session(master, settings) as spark, progress("replay") as tell, stopping() as stop:
        totals = replaying.replay(
            spark, place, source, to, topics=topics or (), checkpoint=checkpoint, tell=tell, stop=stop
        )
    facts = {"pipeline": "replay", "directory": directory, "to": to, "checkpoint": checkpoint}
    console.report(as_json, facts | figures(totals), f"{sentence(totals)} put to {to}")


@app.command()
def rollup(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, of JSON messages.")],
    window: Annotated[str, typer.Option(metavar="DURATION", help="15m, 1h, 1d …, or week, month, quarter, year.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC|DIR", help="Where the counts go; a DIR has a / in it.")],
    by: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Counted by; a.b is b in a.")] = None,
    at: Annotated[str, typer.Option("--time", metavar="FIELD", help="The time; else when the server took it.")] = "",
    watermark: Annotated[str, typer.Option(metavar="DURATION", help="How late a message may be.")] = "1h",
    plot: Annotated[str, typer.Option(metavar="FILE.png", help="Draw all counts at the end.")] = "",
    with_open: Annotated[
        bool, typer.Option("--open", help="In the end put the windows that are not over to the topic, too.")
    ] = False,
    once: Once = False,
    every: Every = 10.0,
    batch: Batch = 1_000_000,
    name: Name = "",
    checkpoint: Checkpoint = "",
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Count JSON messages by windows of time; each window goes out once, when the watermark has passed its end.

    In a directory, `closed` has those, and `open` what is not over yet, as the last run left it. A number is a time in
    seconds since 1970, milliseconds from 1e11 on, microseconds from 1e14 on; a text is a date.
    """
    place, settings = where(proxies, proxies_file, config, timeout), spark_settings(master, conf)
    from pubsub.spark import pipelines
    from pubsub.spark import rollup as rolling
    from pubsub.spark.storage import is_local

    what = rolling.Rollup(window=window, by=tuple(by or ()), time=at, late=watermark)
    in_files = "/" in to
    target = pipelines.whole_path(to) if in_files else to
    default = pipelines.default_name("rollup", topic, window, *what.by, at, target)
    pipelines.check_names([topic, *([] if in_files else [to])], name or default)
    if plot:
        _can_plot(plot)
    checkpoint = _checkpoint(checkpoint, target if in_files else "", name or default, master)
    whose = {"pipeline": "rollup", "topic": topic, "window": window, "by": list(what.by), "time": at}
    directory = target if in_files else ""
    local = is_local(checkpoint) and is_local(directory)
    if local:
        name = pipelines.identify(None, checkpoint, name, default, whose, directory)
        pipelines.hold(place, [topic], name)
    with session(master, settings) as spark, progress("rollup") as tell, stopping() as stop:
        if not local:
            name = pipelines.identify(spark, checkpoint, name, default, whose, directory)
        picture = f"{name}.plot"[-64:]
        if plot and not in_files:
            pipelines.hold(place, [to], picture)
        start = rolling.to_directory if in_files else rolling.to_topic
        query = start(
            spark, place, topic, target, what, name=name, checkpoint=checkpoint, once=once, seconds=every, records=batch
        )
        totals = pipelines.follow(query, tell, stop)
        still_open = what.open_windows(spark, checkpoint)
        facts = {
            "pipeline": "rollup", "topic": topic, "to": to, "name": name, "checkpoint": checkpoint,
            **figures(totals), "untimed": totals.observed.get("untimed", 0), "late": totals.late,
            "open": 0 if still_open is None else still_open.count(),
        }  # fmt: skip
        if still_open is not None:
            if in_files:
                rolling.write_open(still_open, target)
            elif with_open:
                rolling.put_open(still_open, place, to, query.id, checkpoint)
            if plot:
                closed = (
                    spark.read.schema(what.schema()).parquet(f"{target}/closed")
                    if in_files
                    else rolling.closed_in_topic(spark, place, to, what, picture)
                )
                from pubsub.spark.picture import draw

                title = f"{topic}: messages by {' and '.join(what.by) or 'time'}, windows of {window}"
                draw(rolling.series(closed.unionByName(still_open), what.by), title, plot)
    said = f"{sentence(totals)} counted to {to}; {facts['open']:,} counts are of windows that are not over"
    for number, why in ((facts["untimed"], "have no time"), (facts["late"], "counts were too late")):
        said += f"; {number:,} {why} and are left out" if number else ""
    console.report(as_json, facts, said)


@app.command()
def audit(
    records: Annotated[list[str], typer.Argument(metavar="RECORD...", help="Records, and directories of them.")],
    drained: Annotated[
        bool, typer.Option("--drained", help="Every subscriber took all there was by the end of its record.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="A message of a publisher that has no record is no flaw.")
    ] = False,
    skew: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="Bound on the difference of hosts' clocks.")
    ] = 1.0,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Say what was lost, doubled, reordered or never put, from what clients recorded (docs/audit.md).

    Each flaw is a line: kind, subscriber, topic, publisher, counter, message ID, why. Counts follow. With --json each
    is a line of JSON, and so are the counts. Exit code 1 if there is any flaw.
    """
    _check_installed()
    from dataclasses import asdict

    with session(master, spark_settings(master, conf)) as spark, progress("audit"):
        from pubsub.spark.audit import KINDS, Audit

        with closing(Audit(spark, records, drained=drained, partial=partial, skew=skew)) as found:
            for flaw in found.flaws():
                if as_json:
                    console.print_json(asdict(flaw))
                else:
                    typer.echo("  ".join(filter(None, map(str, asdict(flaw).values()))))
            counts = found.counts()
    flaws = sum(counts[kind] for kind in KINDS)
    if as_json:
        console.print_json(counts)
    else:
        table = console.table("what", "how many")
        for name, number in counts.items():
            table.add_row(name.replace("_", " "), f"{number:,}")
        console.print_table(table)
        typer.echo(f"{flaws:,} flaws" if flaws > 1 else "1 flaw" if flaws else "no flaw")
    if flaws:
        raise typer.Exit(1)


def _can_plot(file: str) -> None:
    if find_spec("matplotlib") is None:
        raise ConfigurationError("--plot needs matplotlib: pip install 'pirate-pubsub[plot]'")
    folder = Path(file).absolute().parent
    if not folder.is_dir() or Path(file).suffix not in {".png", ".svg", ".pdf"}:
        raise CallerError(f"--plot {file}: a .png, .svg or .pdf file in a directory that is there")


def _checkpoint(given: str, directory: str, name: str, master: str) -> str:
    """Where Spark keeps how far a rollup is."""
    from pubsub.spark.pipelines import whole_path

    if given:
        return whole_path(given)
    if directory:
        return f"{directory}/_checkpoint"
    if not master.startswith("local"):
        raise ConfigurationError(f"with master {master} name --checkpoint: a directory that all of its machines reach")
    from pubsub.config.locations import state_directory

    return str(state_directory("pipeline", name))


def where(proxies: list[str] | None, proxies_file: str | None, config: str | None, timeout: float) -> Place:
    """The cluster that the command line, the environment or the file names.

    Raises:
        ConfigurationError: Spark is not installed, or a setting is not allowed.
    """
    _check_installed()
    loaded = read(ClientSettings, {"proxies": proxies, "proxies_file": proxies_file}, config)
    from pubsub.spark.pipelines import Place

    return Place(proxies=loaded.settings.proxies, timeout=timeout)


def _check_installed() -> None:
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigurationError(
                f"pipelines need {module}, which is not installed: pip install 'pirate-pubsub[spark]'"
            )


def spark_settings(master: str, conf: list[str] | None) -> dict[str, str]:
    """Settings of Spark by their names.

    Raises:
        ConfigurationError: one is none, or Spark cannot be started.
    """
    settings = {}
    for text in conf or []:
        key, sign, value = text.partition("=")
        if not sign or not key.startswith("spark."):
            raise ConfigurationError(f"--conf {text}: it is spark.NAME=VALUE")
        settings[key] = value
    from pubsub.spark.session import check

    check(master)
    return settings


@contextmanager
def session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Spark, for the time of a `with` block; what it complains of in there is one sentence.

    Raises:
        ConfigurationError: a setting is none.
        PubsubError: the query failed.
    """
    from pubsub.spark.pipelines import running

    with running(master, settings) as spark:
        yield spark


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM came, which ends a query after the request that it is at."""
    came: list[int] = []
    try:
        before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    except ValueError:  # Not the main thread: signals are somebody else's.
        yield lambda: False
        return
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(word: str) -> Iterator[Callable[[Totals], None]]:
    """A function that shows on stderr how far a query is: a line that is redrawn, or now and then a new one."""
    from rich.console import Console

    screen = Console(file=sys.stderr, highlight=False)
    if screen.is_terminal:
        with screen.status(f"{word}: starting Spark") as status:
            yield lambda totals: status.update(f"{word}: {sentence(totals)}")
        return
    told = time.monotonic()

    def tell(totals: Totals) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_SECONDS:
            told = time.monotonic()
            typer.echo(f"{word}: {sentence(totals)}", err=True)

    yield tell


def sentence(totals: Totals) -> str:
    """What a run did, for a person."""
    rate = totals.messages / totals.seconds if totals.seconds else 0.0
    return f"{totals.messages:,} messages in {totals.batches:,} batches, {totals.seconds:.1f} s, {rate:,.0f}/s,"


def figures(totals: Totals) -> dict[str, Any]:
    """What a run did, for JSON."""
    return {"messages": totals.messages, "batches": totals.batches, "seconds": round(totals.seconds, 3)}
