"""`pubsub status`: the cluster on one page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from pubsub import console
from pubsub.base.clock import MICROSECONDS
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.monitoring.unknown import unknown_topics

app = typer.Typer(name="status", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
@takes_settings(ClientSettings, REACHING)
def status(
    loaded: Loaded[ClientSettings],
    wait: Annotated[
        float,
        typer.Option(
            min=0.05, max=600, metavar="SECONDS", help="Time limit for the proxies, and again for the servers."
        ),
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the full report of each process.")] = False,
) -> None:
    """Show the cluster: processes, topics and backlogs.

    The tables list the proxies, the servers, the topics, and the subscribers with a backlog. In the table of topics,
    "one owner" is yes if one server holds all of the topic. "oldest" is the age of the oldest message that a
    subscriber has not acknowledged. "held by" is the subscriber with the largest backlog.

    If the server of a topic does not answer, its figures are question marks (null in JSON), and another table has the
    last known ones. Merges and moves under way are listed, and so are topics that a server holds back, with the reason.

    With keys, a table has a line for each process: the digest of its access list, and its accepted, refused and denied
    requests. The digest must be the same everywhere. For servers with a standby, a table shows the primary, and since
    when the other member is in sync or why it is not.

    Topics with settings are listed with the bytes that they keep beyond what subscribers need, the age of their oldest
    message, and the reason why messages beyond "keep" stay: a subscriber has not acknowledged them, or the server is
    not known to be the sole owner.

    Subscriptions to patterns are listed with their time. Warnings and alarms come last.
    """
    from pubsub.cli.reports import gather

    with naming_default(loaded):
        found = gather(loaded.settings, wait)
    if as_json:
        console.print_json(found)
    else:
        more = [*([_standbys(found)] if found["standbys"] else []), *([_keys(found)] if found["keys"] else [])]
        more += [_moves(found)] if found["moves"] else []
        more += [_held_back(found)] if found["held_back"] else []
        silent = unknown_topics(found["topics"])
        configured = [topic for topic in found["topics"] if topic["kept_bytes"] is not None]
        tables = [_topics(found), *([last_known(silent)] if silent else [])]
        tables += [_kept(configured)] if configured else []
        for name, shown in (("delayed", _delayed), ("throttled", _throttled)):
            tables += [shown(some)] if (some := [topic for topic in found["topics"] if topic.get(name)]) else []
        patterns = [_patterns(found)] if found["patterns"] else []
        console.print_table(_proxies(found), _servers(found), *more, *tables, *patterns, _subscribers(found))
        for kind in ("warning", "alarm"):
            for text in found[f"{kind}s"]:
                typer.echo(f"{kind}: {text}")


def _proxies(found: dict[str, Any]) -> Any:
    table = console.table("proxy", "address", "state", "servers", "topics", "memory", "disk free", title="Proxies")
    for proxy in found["proxies"]:
        report = proxy["report"]
        if report is None:
            table.add_row("?", proxy["address"], proxy["reason"], *"????")
            continue
        up = "witness" if report.get("witness") else "up"
        state = f"starting, {report['startup_seconds_left']:.1f} s left" if report["starting"] else up
        alive = sum(server["alive"] for server in report["servers"])
        table.add_row(
            report["proxy"],
            proxy["address"],
            state,
            f"{alive} of {len(report['servers'])}",
            f"{report['topics_total']:,}",
            *_process(report),
        )
    return table


def _process(report: dict[str, Any]) -> list[str]:
    """Return memory and free disk space of a process; empty if it does not report them."""
    facts = report.get("process") or {}
    return [console.size(facts[name]) if facts.get(name) else "" for name in ("memory_bytes", "disk_free_bytes")]


def _servers(found: dict[str, Any]) -> Any:
    table = console.table(
        "server", "state", "topics", "records", "disk", "memory", "disk free", "address", title="Servers"
    )
    for server in found["servers"]:
        report = server["report"]
        if report is None:
            since = server["silent_seconds"]
            state = "no heartbeat" if since is None else f"no heartbeat for {_age(since)}"
            table.add_row(server["id"], "up, " + server["reason"] if server["alive"] else state, *"??????")
            continue
        records = sum(topic["records"] for topic in report["topics"].values())
        table.add_row(
            server["id"],
            "disk full" if report["full"] else "up, draining" if report.get("draining") else "up",
            f"{len(report['topics']):,}",
            f"{records:,}",
            console.size(sum(report["disk"].values())) if report["disk"] else "",
            *_process(report),
            report["address"],
        )
    return table


def _standbys(found: dict[str, Any]) -> Any:
    from pubsub.cli.standbys import clock

    table = console.table(
        "server", "standby", "since", "primary", "term", "in sync", "lag", "held", "votes", title="Standbys"
    )
    for row in found["standbys"]:
        percent, lag = row["copied_percent"], row["lag_loops"]
        table.add_row(
            row["server"],
            row["state"] if percent is None else f"{row['state']}, {percent} %",
            "" if row["since_seconds"] is None else clock(row["since_seconds"]),
            f"{row['primary']} {row['address']}",
            str(row["term"]),
            " ".join(row["in_sync"]),
            "" if lag is None else f"{lag:,} loops, {console.size(row['lag_bytes'])}",
            "" if row["held"] is None else f"{row['held']:,}",
            "{} of {}".format(*row["votes"]),
        )
    return table


def _keys(found: dict[str, Any]) -> Any:
    table = console.table("process", "authorized", "lines", "entered", "refused", "denied", title="Keys")
    for row in found["keys"]:
        counts = [f"{row[name]:,}" for name in ("lines", "entered", "refused", "denied")]
        table.add_row(f"{row['role']} {row['id']}", row["authorized"], *counts)
    return table


def _moves(found: dict[str, Any]) -> Any:
    table = console.table("topic", "server", "", "other", "state", "chunks", title="Merges and moves under way")
    for move in found["moves"]:
        silent = f"{move['state']}, {move['tries']} tries without an answer" if move["tries"] > 1 else move["state"]
        table.add_row(move["topic"], move["server"], move["direction"], move["other"], silent, f"{move['chunks']:,}")
    return table


def _held_back(found: dict[str, Any]) -> Any:
    table = console.table("topic", "server", "reason", title="Topics held back, which are not served")
    for row in found["held_back"]:
        table.add_row(row["topic"], row["server"], row["reason"].replace("_", " "))
    if found["held_back_left_out"]:
        table.add_row(f"{found['held_back_left_out']:,} more", "", "")
    return table


def _patterns(found: dict[str, Any]) -> Any:
    table = console.table("subscriber", "pattern", "since", title="Patterns of topics")
    for row in found["patterns"]:
        since = datetime.fromtimestamp(row["stamp"] / MICROSECONDS, UTC).isoformat(" ", "seconds")
        table.add_row(row["subscriber"], row["pattern"], since)
    return table


def _topics(found: dict[str, Any]) -> Any:
    table = console.table(
        "topic", "owner", "one owner", "records", "bytes", "subscribers", "backlog", "oldest", "held by", title="Topics"
    )
    for topic in found["topics"]:
        if topic["unknown_seconds"] is not None:
            sole = "?" if topic["sole_owner"] is None else "no"
            table.add_row(topic["topic"], " ".join(topic["owners"]), sole, *"??????")
            continue
        table.add_row(
            topic["topic"],
            " ".join(topic["owners"]) or "none yet",
            "yes" if topic["sole_owner"] else "no",
            f"{topic['records']:,}",
            console.size(topic["bytes"]),
            f"{len(topic['subscribers']):,}",
            f"{topic['backlog']:,}",
            _age(topic["oldest_unacknowledged_seconds"]),
            topic["held_by"] or "",
        )
    return table


def _kept(topics: list[dict[str, Any]]) -> Any:
    table = console.table("topic", "keep", "drop", "kept", "oldest", "why more stays", title="Topics with settings")
    for topic in topics:
        table.add_row(
            topic["topic"],
            topic["keep"],
            topic["drop"],
            console.size(topic["kept_bytes"]),
            _age(topic["oldest_stored_seconds"]),
            topic["not_let_go"],
        )
    return table


def _delayed(topics: list[dict[str, Any]]) -> Any:
    table = console.table("topic", "messages", "bytes", "overdue", title="Topics with delayed messages")
    for topic in topics:
        size, late = console.size(topic["delayed_bytes"]), _age(topic["overdue_seconds"])
        table.add_row(topic["topic"], f"{topic['delayed']:,}", size, late)
    return table


def _throttled(topics: list[dict[str, Any]]) -> Any:
    table = console.table("topic", "rate", "bytes", "puts", "waited", title="Topics with throttled puts")
    for topic in topics:
        puts, waited = f"{topic['throttled']:,}", _age(topic["throttled_seconds"])
        table.add_row(topic["topic"], topic["rate_limit"], topic["bytes_limit"], puts, waited)
    return table


def _subscribers(found: dict[str, Any]) -> Any:
    table = console.table("subscriber", "topic", "waiting", "oldest", "", title="Subscribers with a backlog")
    waiting = [
        (facts["waiting"], name, topic["topic"], _age(facts["oldest_unacknowledged_seconds"]), facts["polling"])
        for topic in found["topics"]
        for name, facts in (topic["subscribers"] or {}).items()
        if facts["waiting"]
    ]
    for topic in found["topics"]:
        if topic["subscribers"] is None:
            table.add_row("?", topic["topic"], "?", "?", "")
    for count, name, topic, age, polling in sorted(waiting, key=lambda row: (-row[0], row[1:])):
        table.add_row(name, topic, f"{count:,}", age, "asking" if polling else "not asking")
    return table


def last_known(topics: list[dict[str, Any]]) -> Any:
    """Return a table of the topics without current figures: since when, and the last known figures."""
    heads = "topic", "owner", "unknown for", "records", "bytes", "backlog", "oldest", "known"
    table = console.table(*heads, title="Unknown topics, with the figures known last")
    for topic in topics:
        last = topic["last_known"]
        figures = [*"????", "nothing"]
        if last is not None:
            figures = [f"{last['records']:,}", console.size(last["bytes"]), f"{last['backlog']:,}"]
            figures += [_age(last["oldest_unacknowledged_seconds"]), f"{_age(last['seconds_ago'])} ago"]
        table.add_row(topic["topic"], " ".join(topic["owners"]), _age(topic["unknown_seconds"]), *figures)
    return table


def _age(seconds: float | None) -> str:
    """Format a duration in its two largest units."""
    if seconds is None:
        return ""
    for unit, size, name, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // part)} {name}"
    return f"{seconds:.1f} s"
