"""`pubsub pipeline …`: what people run on Spark. Each command is one query, and says how far it is."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from pubsub import console
from pubsub.cli.running import (
    check_installed,
    figures,
    progress,
    sentence,
    session,
    spark_settings,
    stopping,
    taking_over,
    where,
)

app = typer.Typer(name="pipeline", rich_markup_mode=None, pretty_exceptions_enable=False)

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="Under which it is subscribed; else made of its target.")]
Once = Annotated[bool, typer.Option("--once", help="Do what there is now, then end; else go on until stopped.")]
Every = Annotated[float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="From one batch to the next.")]
Batch = Annotated[int, typer.Option(min=0, max=10**12, metavar="N", help="Messages of a batch at most; 0: no limit.")]
Checkpoint = Annotated[str, typer.Option(metavar="DIR", help="Where Spark keeps how far it is.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Go on under a name that belongs to another checkpoint, which is gone.")
]
Master = Annotated[str, typer.Option(metavar="MASTER", help="Spark's master: local[4], spark://HOST:7077, yarn …")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
]
Timeout = Annotated[float, typer.Option(min=0.05, max=86_400, metavar="SECONDS", help="For one request.")]
Proxies = Annotated[list[str] | None, typer.Option("--proxy", metavar="ADDR", help="Address of a proxy.")]
ProxiesFile = Annotated[str | None, typer.Option(metavar="FILE", help="File that lists the proxies.")]
ProxyKeys = Annotated[
    list[str] | None, typer.Option("--proxy-key", metavar="KEY", help="Public key of a proxy, pk_…; once for each.")
]
ClientID = Annotated[str, typer.Option("--client", metavar="ID", help="With keys: the client whose key it is.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="File of its secret key, on every machine of Spark's.")
]
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
    take_over: TakeOver = False,
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    client: ClientID = "spark",
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write topics to Parquet files, by topic and date, each message once, killed or not.

    It begins with what is stored, and from then on the service keeps for it what it has not archived yet.
    """
    place = taking_over(where(proxies, proxies_file, proxy_keys, client, key, config, timeout), take_over)
    settings = spark_settings(master, conf)
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
    proxy_keys: ProxyKeys = None,
    client: ClientID = "spark",
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Put an archive's messages to a topic, in the order in which they were taken, each once, killed or not.

    Run again, it puts what the archive got since; with another --checkpoint it puts everything again.
    """
    place = where(proxies, proxies_file, proxy_keys, client, key, config, timeout)
    settings = spark_settings(master, conf)
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
    take_over: TakeOver = False,
    master: Master = "local[*]",
    conf: Conf = None,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    client: ClientID = "spark",
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Count JSON messages by windows of time; each window goes out once, when the watermark has passed its end.

    In a directory, `closed` has those, and `open` what is not over yet, as the last run left it. A number is a time in
    seconds since 1970, milliseconds from 1e11 on, microseconds from 1e14 on; a text is a date.
    """
    place = taking_over(where(proxies, proxies_file, proxy_keys, client, key, config, timeout), take_over)
    settings = spark_settings(master, conf)
    from pubsub.cli.counting import Counting

    counting = Counting(topic, to, window, tuple(by or ()), at, watermark, plot, with_open, once, every, batch)
    facts, said = counting.run(place, settings, master, name, checkpoint)
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
    check_installed()
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
