"""`pubsub pipeline …`: what people run on Spark. Each command is one query, and says how far it is."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from pubsub.options import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pubsub.spark.pipelines import Place, Totals

TELL_SECONDS: Final = 10.0
"""Between two lines of progress where nobody watches a terminal."""

app = typer.Typer(name="pipeline", rich_markup_mode=None, pretty_exceptions_enable=False)

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")]
Name = Annotated[
    str, typer.Option(metavar="NAME", help="Under which it is subscribed; else made of its topics and its target.")
]
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
    place = where(proxies, proxies_file, config, timeout)
    from pubsub.spark import pipelines

    target = pipelines.whole_path(to)
    name = name or pipelines.default_name("archive", *sorted(topics), target)
    pipelines.check_names(topics, name)
    checkpoint = pipelines.whole_path(checkpoint) if checkpoint else f"{target}/_checkpoint"
    with session(master, conf) as spark, progress("archive") as tell, stopping() as stop:
        query = pipelines.archive(
            spark, place, topics, target, name=name, checkpoint=checkpoint, once=once, seconds=every, records=batch
        )
        totals = pipelines.follow(query, tell, stop)
    facts = {"pipeline": "archive", "topics": topics, "to": to, "name": name, "checkpoint": checkpoint}
    console.report(as_json, facts | figures(totals), f"{sentence(totals)} archived to {to}")


def where(proxies: list[str] | None, proxies_file: str | None, config: str | None, timeout: float) -> Place:
    """The cluster that the command line, the environment or the file names.

    Raises:
        ConfigurationError: Spark is not installed, or a setting is not allowed.
    """
    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            raise ConfigurationError(
                f"pipelines need {module}, which is not installed: pip install 'pirate-pubsub[spark]'"
            )
    loaded = read(ClientSettings, {"proxies": proxies, "proxies_file": proxies_file}, config)
    from pubsub.spark.pipelines import Place

    return Place(proxies=loaded.settings.proxies, timeout=timeout)


@contextmanager
def session(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """Spark, for the time of a `with` block; what it complains of in there is one sentence.

    Raises:
        ConfigurationError: there is no Java, or a setting is none.
        PubsubError: the query failed.
    """
    settings = {}
    for text in conf or []:
        key, sign, value = text.partition("=")
        if not sign or not key.startswith("spark."):
            raise ConfigurationError(f"--conf {text}: it is spark.NAME=VALUE")
        settings[key] = value
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
