"""`pubsub pipeline …`: Spark jobs on topics. Each command runs one query and reports its progress."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from pubsub import console
from pubsub.cli.running import (
    check_installed,
    progress,
    session,
    spark_settings,
    taking_over,
    where,
)
from pubsub.errors import CallerError

app = typer.Typer(name="pipeline", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="Name of its subscription; default: made from the target.")]
Once = Annotated[
    bool, typer.Option("--once", help="Process the messages stored now, then end. Without it: run until stopped.")
]
Every = Annotated[float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="Time from one batch to the next.")]
Batch = Annotated[int, typer.Option(min=0, max=10**12, metavar="N", help="Maximum messages of one batch; 0: no limit.")]
Checkpoint = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="Where Spark keeps its progress; default: in DIR, or for counts to a topic in the user's data.",
    ),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Use a name that belonged to another checkpoint, which is lost.")
]
Master = Annotated[
    str, typer.Option(metavar="MASTER", help="Spark master, such as local[4], spark://HOST:7077 or yarn.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="Setting of Spark, such as spark.executor.memory=4g; may be repeated."
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.05, max=86_400, metavar="SECONDS", help="Time limit of one request to the cluster.")
]
Proxies = Annotated[
    list[str] | None, typer.Option("--proxy", metavar="ADDR", help="Address of a proxy; repeat it for each.")
]
ProxiesFile = Annotated[str | None, typer.Option(metavar="FILE", help="File that lists the proxies, one a line.")]
ProxyKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy-key",
        metavar="KEY",
        help="Public key of a proxy, pk_…; repeat it for each, in the order of the proxies.",
    ),
]
ClientID = Annotated[str, typer.Option("--client", metavar="ID", help="With keys: client ID in the access list.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="With keys: file of that client's secret key, at the same path on every machine of Spark.",
    ),
]
Config = Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with settings; default: PUBSUB_CONFIG.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def pipeline() -> None:
    """Archive, replay, count and audit messages with Spark.

    docs/spark.md describes the commands.
    """


@app.command()
def archive(
    topics: Topics,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Directory or URL for the Parquet files.")],
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="parquet, or delta for a Delta table in a directory.")
    ] = "parquet",
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
    """Write topics to Parquet files or a Delta table, by topic and date.

    Each message is written once, even if the command is killed. It begins with the messages that are stored now. From
    then on it is a subscriber: the servers keep messages until they are archived. The target may be a local directory
    or a URL, such as s3a://BUCKET/archive. A Delta table needs a directory.
    """
    place = taking_over(where(proxies, proxies_file, proxy_keys, client, key, config, timeout), take_over)
    settings = spark_settings(master, conf)
    from pubsub.cli.defined import Defined
    from pubsub.spark.archive import BY, FORMATS
    from pubsub.spark.pipeline_file.definition import Definition, Run, Target

    if form not in FORMATS:
        raise CallerError(f"--format {form}: give {' or '.join(FORMATS)}")
    made = Definition(
        topics=tuple(topics),
        target=Target(directory=to, form=form, partition_by=BY),
        run=Run(name=name, checkpoint=checkpoint, every=every, batch=batch, restarts=0, master=master, conf=settings),
    )
    facts, said = Defined(made, "", place, once).run()
    console.report(as_json, facts, said)


@app.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE.toml", help="The pipeline's file.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only check the file, and list all that is wrong with it.")
    ] = False,
    once: Once = False,
    take_over: TakeOver = False,
    metrics: Annotated[
        str, typer.Option(metavar="ADDR", help="Serve metrics for Prometheus at HOST:PORT; port 0: a free one.")
    ] = "",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow other hosts to read the metrics, without a key.")
    ] = False,
    timeout: Timeout = 30.0,
    proxies: Proxies = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    client: ClientID = "spark",
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run the pipeline of a file: from topics or an archive, through fields, columns and windows, to a topic or files.

    docs/reference/pipeline-file.md describes the file. All of it is checked before anything is started. Each message
    counts once, even if the command is killed. After an answer that did not come in time, or the end of a worker of
    Spark, it continues by itself.
    """
    check_installed()
    from pubsub.cli.defined import run_file
    from pubsub.spark.pipeline_file.definition import read_definition

    if check:
        _check_file(file, as_json)
        return
    made = read_definition(file)
    place = taking_over(where(proxies, proxies_file, proxy_keys, client, key, config, timeout), take_over)
    spark_settings(made.run.master, None)
    console.report(as_json, *run_file(made, file, place, once=once, metrics=metrics, insecure=insecure))


def _check_file(file: str, as_json: bool) -> None:
    from pubsub.cli.defined import check_file
    from pubsub.spark.pipeline_file.definition import PipelineFileRefused, read_definition

    try:
        check_file(read_definition(file), file)
    except PipelineFileRefused as error:
        for problem in error.problems:
            typer.echo(f"{file}: {problem}", err=True)
        raise typer.Exit(error.exit_code) from None
    console.report(as_json, {"file": file, "problems": []}, f"{file}: ok")


@app.command()
def replay(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="An archive, as pubsub pipeline archive writes it.")],
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Topic to put the messages to.")],
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only messages of this topic; may be repeated.")
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
    """Put the messages of an archive to a topic.

    It puts them in their stored order, each once, even if the command is killed. A second run puts only messages that
    were archived since. With another --checkpoint it puts all messages again.
    """
    place = where(proxies, proxies_file, proxy_keys, client, key, config, timeout)
    settings = spark_settings(master, conf)
    from pubsub.cli.replaying import Replayed
    from pubsub.spark.pipeline_file.definition import RAW, Definition, Run, Target

    run_of = Run(checkpoint=checkpoint, master=master, conf=settings)
    made = Definition(topics=tuple(topics or ()), archive=directory, target=Target(topic=to, encoding=RAW), run=run_of)
    console.report(as_json, *Replayed(made, "", place).run())


To = Annotated[
    str,
    typer.Option(
        "--to", metavar="TOPIC|DIR", help="Topic or directory for the counts; a text with a / is a directory."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD", help="Count separately by this field; a.b is field b in a. May be repeated."),
]
Window = Annotated[
    str, typer.Option(metavar="DURATION", help="Length of a window: 15m, 1h, 1d …, or week, month, quarter, year.")
]


@app.command()
def rollup(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic with JSON messages.")],
    window: Window,
    to: To,
    by: By = None,
    at: Annotated[
        str, typer.Option("--time", metavar="FIELD", help="Field with the time; default: the server's timestamp.")
    ] = "",
    watermark: Annotated[
        str, typer.Option(metavar="DURATION", help="How late a message may be and still count.")
    ] = "1h",
    plot: Annotated[
        str, typer.Option(metavar="FILE.png", help="Draw all counts into this file at the end; also .svg or .pdf.")
    ] = "",
    with_open: Annotated[
        bool, typer.Option("--open", help="At the end also put the counts of windows that have not ended to the topic.")
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
    """Count JSON messages by windows of time.

    The counts of a window go out once, when the watermark has passed its end: the latest time seen, less --watermark.
    In a directory, the folder closed has these windows, and the folder open has the windows that had not ended at the
    last run.

    A time may be a number or a text. A number counts seconds since 1970, from 1e11 on milliseconds, from 1e14 on
    microseconds. A text is a date. Example: pubsub pipeline rollup orders --window 1h --by country --to counts/.
    """
    place = taking_over(where(proxies, proxies_file, proxy_keys, client, key, config, timeout), take_over)
    settings = spark_settings(master, conf)
    from pubsub.cli.counting import Counting

    counting = Counting(topic, to, window, tuple(by or ()), at, watermark, plot, with_open, once, every, batch)
    facts, said = counting.run(place, settings, master, name, checkpoint)
    console.report(as_json, facts, said)


@app.command()
def audit(
    records: Annotated[
        list[str], typer.Argument(metavar="RECORD...", help="Files or directories of records, as --record writes them.")
    ],
    drained: Annotated[
        bool,
        typer.Option(
            "--drained", help="Count as lost each message that a subscriber had not taken by the end of its record."
        ),
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Accept messages of publishers without a record.")] = False,
    skew: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="Largest difference between the hosts' clocks.")
    ] = 1.0,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """List messages that were lost, doubled or reordered.

    It also lists messages that were received and never put. It reads the records of the clients (docs/audit.md). Each
    flaw is one line: kind, subscriber, topic, publisher, counter, message ID, reason. Counts follow. With --json each
    flaw is a line of JSON, and the counts are the last line. Exit code 1 if there is any flaw.
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
        table = console.table("result", "count")
        for name, number in counts.items():
            table.add_row(name.replace("_", " "), f"{number:,}")
        console.print_table(table)
        typer.echo(f"{flaws:,} flaws" if flaws > 1 else "1 flaw" if flaws else "no flaw")
    if flaws:
        raise typer.Exit(1)
