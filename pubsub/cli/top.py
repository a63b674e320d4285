"""`pubsub top`: the cluster in the terminal, anew each second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import NotAllowed, NotLetIn, Unavailable
from pubsub.monitoring.rates import Rates
from pubsub.monitoring.rows import Row, on_the_way, proxy_row, server_row, topic_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

PATIENCE_SECONDS: Final = 2.0
"""With each process."""

WARNINGS_MAX: Final = 8
"""Warnings that the screen shows; the line behind them counts the others."""

app = typer.Typer(name="top", rich_markup_mode=None, pretty_exceptions_enable=False)


class Sort(StrEnum):
    """What topics are sorted by: by name, or the largest first."""

    TOPIC = "topic"
    RECORDS = "records"
    BYTES = "bytes"
    SUBSCRIBERS = "subscribers"
    BACKLOG = "backlog"
    PUTS = "puts"
    DELIVERIES = "deliveries"


@app.command()
@takes_settings(ClientSettings, REACHING)
def top(
    loaded: Loaded[ClientSettings],
    every: Annotated[float, typer.Option(min=0.5, max=3600, metavar="SECONDS", help="Between two looks.")] = 1.0,
    sort: Annotated[Sort, typer.Option(help="What topics are sorted by.")] = Sort.PUTS,
    topics: Annotated[int, typer.Option(min=0, max=10_000, metavar="N", help="Topics at most.")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Look twice, for the rates, print once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON a look.")] = False,
) -> None:
    """Show processes, their rates and disks, what moves, and the busiest topics, until Ctrl-C.

    Where the proxies do not answer it says so and asks again; with --once that is an error.
    """
    looks = _looks(loaded, every, sort.value, topics, strict=once)
    if once:
        next(looks)
        found = next(looks)
        if as_json:
            console.print_json(found)
        else:
            _print(found)
    elif as_json:
        for found in looks:
            console.print_json(found)
            sys.stdout.flush()
    else:
        _show(looks)


def _looks(loaded: Loaded[ClientSettings], every: float, sort: str, most: int, *, strict: bool) -> Iterator[Row]:
    """What the cluster is like, again and again; `problem` says why nothing is known.

    Raises:
        Unavailable, NotLetIn, NotAllowed: no proxy answers, and that is to be an error.
    """
    from pubsub.cli.reports import gather

    rates = Rates()
    due = time.monotonic()
    while True:
        try:
            with naming_default(loaded):
                report = gather(loaded.settings, PATIENCE_SECONDS)
        except (Unavailable, NotLetIn, NotAllowed) as error:
            if strict:
                raise
            yield {"at": round(time.time(), 3), "problem": str(error)}
        else:
            rates.add(report)
            yield {"at": round(time.time(), 3), "problem": "", **snapshot(report, rates, sort, most)}
        due = max(due + every, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def snapshot(report: dict[str, Any], rates: Rates, sort: str, most: int) -> Row:
    """One look: `warnings`, `proxies`, `servers`, `moving`, `topics` (at most so many) and `topics_total`."""
    return {
        "warnings": report["warnings"],
        "proxies": [proxy_row(proxy) for proxy in report["proxies"]],
        "servers": [server_row(server, rates.servers.get(server["id"])) for server in report["servers"]],
        "moving": on_the_way(report),
        "topics": topic_rows(report["topics"], rates, sort)[:most],
        "topics_total": len(report["topics"]),
    }


def _show(looks: Iterator[Row]) -> None:
    """Fill the terminal, or, where there is none, print one look after the other."""
    from rich.console import Console
    from rich.live import Live

    screen = Console(highlight=False)
    if not screen.is_terminal:
        for found in looks:
            _print(found)
            sys.stdout.flush()
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        for found in looks:
            live.update(_picture(found), refresh=True)


def _print(found: Row) -> None:
    if found["problem"]:
        typer.echo(f"warning: {found['problem']}")
        return
    console.print_table(*_tables(found))
    for text in found["warnings"]:
        typer.echo(f"warning: {text}")


def _picture(found: Row) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if found["problem"]:
        return Text(f"{found['problem']}; asking again", style="red")
    warnings = found["warnings"]
    lines = [Text(f"warning: {text}", style="red") for text in warnings[:WARNINGS_MAX]]
    if len(warnings) > WARNINGS_MAX:
        lines.append(Text(f"and {len(warnings) - WARNINGS_MAX:,} more: pubsub status", style="red"))
    return Group(*lines, *_tables(found))


def _tables(found: Row) -> list[Any]:
    proxies = console.table("proxy", "state", "servers", "topics", "connections", title="Proxies")
    for row in found["proxies"]:
        cells = row["id"], row["state"], " ".join(row["servers"]), _count(row["topics"]), _count(row["connections"])
        proxies.add_row(*cells)
    servers = console.table("server", "state", "topics", "records", "put/s", "out/s", "disk", title="Servers")
    for row in found["servers"]:
        disk = None if row["disk"] is None else sum(row["disk"].values())
        counts = [_count(row[name]) for name in ("topics", "records", "puts", "deliveries")]
        servers.add_row(row["id"], row["state"], *counts, _count(disk))
    out = [proxies, servers]
    if found["moving"]:
        moving = console.table("topic", "", "servers", title="On their way")
        for row in found["moving"]:
            moving.add_row(row["topic"], row["kind"], (" → " if row["kind"] == "move" else " + ").join(row["servers"]))
        out.append(moving)
    head = f"Topics: {len(found['topics']):,} of {found['topics_total']:,}"
    topics = console.table(
        "topic", "owner", "records", "bytes", "subscribers", "backlog", "put/s", "taken/s", title=head
    )
    for row in found["topics"]:
        counts = [_count(row[name]) for name in ("records", "bytes")]
        counts += [_count(len(row["subscribers"]))] + [_count(row[name]) for name in ("backlog", "puts", "deliveries")]
        topics.add_row(row["topic"], " ".join(row["owners"]), *counts)
    return [*out, topics]


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
