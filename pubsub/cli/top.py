"""`pubsub top`: the cluster in the terminal, refreshed each second."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.cli.status import last_known
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import KeyRefused, NotAllowed, Unavailable
from pubsub.monitoring.alarms import words
from pubsub.monitoring.rates import Rates
from pubsub.monitoring.rows import Row, on_the_way, proxy_row, server_row, topic_rows
from pubsub.monitoring.unknown import Memory, unknown_topics

if TYPE_CHECKING:
    from rich.console import RenderableType

PATIENCE_SECONDS: Final = 2.0
"""Time limit for each process."""

WARNINGS_MAX: Final = 8
"""Maximum warnings on the screen; the next line counts the others."""

app = typer.Typer(name="top", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


KEYS: Final = {
    "n": "topic",
    "r": "records",
    "y": "bytes",
    "s": "subscribers",
    "b": "backlog",
    "o": "oldest",
    "p": "puts",
    "d": "deliveries",
}
"""Keyboard key -> column that it sorts the topics by."""

QUIT: Final = "q"


class Sort(StrEnum):
    """The order of topics: by name, or the largest first."""

    TOPIC = "topic"
    RECORDS = "records"
    BYTES = "bytes"
    SUBSCRIBERS = "subscribers"
    BACKLOG = "backlog"
    OLDEST = "oldest"
    PUTS = "puts"
    DELIVERIES = "deliveries"


@app.command()
@takes_settings(ClientSettings, REACHING)
def top(
    loaded: Loaded[ClientSettings],
    every: Annotated[
        float, typer.Option(min=0.5, max=3600, metavar="SECONDS", help="Time from one refresh to the next.")
    ] = 1.0,
    sort: Annotated[Sort, typer.Option(help="Column that the topics are sorted by.")] = Sort.PUTS,
    topics: Annotated[int, typer.Option(min=0, max=10_000, metavar="N", help="Maximum number of topics shown.")] = 20,
    once: Annotated[
        bool, typer.Option("--once", help="Measure the rates over one interval, print once and end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each refresh.")] = False,
) -> None:
    """Show rates, disks, memory and the busiest topics.

    It runs until Ctrl-C or q. In a terminal, keys sort the topics: n name, r records, y bytes, s subscribers, b
    backlog, o age of the oldest waiting message, p puts, d deliveries.

    If no proxy answers, the screen says so and the command asks again. With --once that is an error.
    """
    looks = Looks(loaded, sort.value, topics)
    if once:
        looks.look(strict=True)
        time.sleep(every)
        looks.look(strict=True)
        _show(looks.found(), as_json=as_json)
    elif as_json or not sys.stdout.isatty():
        for _ in _paced(every):
            looks.look()
            _show(looks.found(), as_json=as_json)
            sys.stdout.flush()
    else:
        _fill(looks, every)


class Looks:
    """The cluster's state at the last look.

    Args:
        sort: column that topics are sorted by, one of KEYS's values; may change at any time.
        most: maximum number of topics.
    """

    def __init__(self, loaded: Loaded[ClientSettings], sort: str, most: int) -> None:
        self._loaded, self.sort, self._most = loaded, sort, most
        self._rates, self._memory = Rates(), Memory()
        self._at = 0.0
        self._report: dict[str, Any] | None = None
        self._problem = ""

    def look(self, *, strict: bool = False) -> None:
        """Ask the cluster.

        Raises:
            Unavailable, KeyRefused, NotAllowed: no proxy answers, and `strict` is set.
        """
        from pubsub.cli.reports import gather

        self._report, self._problem = None, ""
        try:
            with naming_default(self._loaded):
                self._report = gather(self._loaded.settings, PATIENCE_SECONDS)
            self._rates.add(self._report)
            self._memory.add(self._report, time.monotonic())
        except (Unavailable, KeyRefused, NotAllowed) as error:
            if strict:
                raise
            self._problem = str(error)
        self._at = round(time.time(), 3)

    def found(self) -> Row:
        """Return the fields of `snapshot`, with `at` (seconds since 1970) and `problem`, the reason if no proxy
        answered.
        """
        facts = {} if self._report is None else snapshot(self._report, self._rates, self.sort, self._most)
        return {"at": self._at, "problem": self._problem, **facts}


def _paced(every: float) -> Iterator[None]:
    """Yield at once, and then at this interval in seconds, or as soon as the caller is ready."""
    due = time.monotonic()
    while True:
        yield
        due = max(due + every, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def snapshot(report: dict[str, Any], rates: Rates, sort: str, most: int) -> Row:
    """Return `warnings`, `alarms`, `proxies`, `servers`, `moving`, `topics` (at most `most`), `topics_total` and
    `sort`.
    """
    return {
        "warnings": report["warnings"],
        "alarms": report["alarms"],
        "proxies": [proxy_row(proxy) for proxy in report["proxies"]],
        "servers": [server_row(server, rates.servers.get(server["id"])) for server in report["servers"]],
        "moving": on_the_way(report),
        "topics": topic_rows(report["topics"], rates, sort)[:most],
        "topics_total": len(report["topics"]),
        "sort": sort,
    }


def _fill(looks: Looks, every: float) -> None:
    """Draw the full screen until Ctrl-C or q."""
    from rich.live import Live

    with _Keyboard() as keyboard, Live(console=console.screen(), screen=True, auto_refresh=False) as live:
        while True:
            due = time.monotonic() + every
            looks.look()
            live.update(_picture(looks.found()), refresh=True)
            while key := keyboard.pressed(due - time.monotonic()):
                if key == QUIT:
                    return
                looks.sort = KEYS.get(key, looks.sort)
                live.update(_picture(looks.found()), refresh=True)


class _Keyboard:
    """Reads single keys without Enter; a context manager. Without a terminal on standard input it returns none."""

    def __init__(self) -> None:
        self._before: Any = None

    def __enter__(self) -> _Keyboard:
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            with contextlib.suppress(termios.error):  # The terminal was closed.
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """Wait for the next key; "" if none came in time."""
        if self._before is None:
            time.sleep(max(0.0, seconds))
            return ""
        if not select.select([sys.stdin], [], [], max(0.0, seconds))[0]:
            return ""
        return os.read(sys.stdin.fileno(), 1).decode("latin-1") or QUIT  # End of file: the terminal was closed.


def _show(found: Row, *, as_json: bool) -> None:
    if as_json:
        console.print_json(found)
        return
    if found["problem"]:
        typer.echo(f"warning: {found['problem']}")
        return
    console.print_table(*_tables(found))
    for kind in ("warning", "alarm"):
        for text in found[f"{kind}s"]:
            typer.echo(f"{kind}: {text}")


def _picture(found: Row) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if found["problem"]:
        return Text(f"{found['problem']}; trying again", style="red")
    wrong = [f"{kind}: {text}" for kind in ("warning", "alarm") for text in found[f"{kind}s"]]
    lines = [Text(text, style="red") for text in wrong[:WARNINGS_MAX]]
    if len(wrong) > WARNINGS_MAX:
        lines.append(Text(f"and {len(wrong) - WARNINGS_MAX:,} more: pubsub status", style="red"))
    keys = " ".join(f"{key} {name}" for key, name in KEYS.items())
    return Group(*lines, *_tables(found), Text(f"sort: {keys}   {QUIT} quit", style="dim"))


def _tables(found: Row) -> list[Any]:
    proxies = console.table("proxy", "state", "servers", "topics", "connections", title="Proxies")
    for row in found["proxies"]:
        cells = row["id"], row["state"], " ".join(row["servers"]), _count(row["topics"]), _count(row["connections"])
        proxies.add_row(*cells)
    servers = console.table(
        "server", "state", "topics", "records", "put/s", "out/s", "disk", "disk free", "memory", title="Servers"
    )
    for row in found["servers"]:
        disk = None if row["disk"] is None else sum(row["disk"].values())
        if not row["up"]:
            since = row["silent_seconds"]
            state = row["state"] if since is None else f"{row['state']} for {words(since)}"
            servers.add_row(row["id"], state, *"???????")
            continue
        counts = [_count(row[name]) for name in ("topics", "records", "puts", "deliveries")]
        sizes = [console.size(bytes_) for bytes_ in (disk, row["disk_free_bytes"], row["memory_bytes"])]
        servers.add_row(row["id"], row["state"], *counts, *sizes)
    out = [proxies, servers]
    if found["moving"]:
        moving = console.table("topic", "", "servers", "", "chunks", "tries", title="On their way")
        for row in found["moving"]:
            servers_of = (" → " if row["kind"] == "move" else " + ").join(row["servers"])
            counts = [_count(row[name]) for name in ("chunks", "tries")]
            moving.add_row(row["topic"], row["kind"], servers_of, row["state"], *counts)
        out.append(moving)
    head = f"Topics: {len(found['topics']):,} of {found['topics_total']:,}, by {found['sort']}"
    topics = console.table(
        "topic", "owner", "records", "bytes", "subscribers", "backlog", "oldest", "put/s", "taken/s", title=head
    )
    for row in found["topics"]:
        if row["unknown_seconds"] is not None:
            topics.add_row(row["topic"], " ".join(row["owners"]), *"???????")
            continue
        oldest = row["oldest_unacknowledged_seconds"]
        counts = [_count(row["records"]), console.size(row["bytes"]), _count(len(row["subscribers"]))]
        counts += [_count(row["backlog"]), "" if oldest is None else words(oldest)]
        counts += [_count(row[name]) for name in ("puts", "deliveries")]
        topics.add_row(row["topic"], " ".join(row["owners"]), *counts)
    silent = unknown_topics(found["topics"])
    return [*out, topics, *([last_known(silent)] if silent else [])]


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
