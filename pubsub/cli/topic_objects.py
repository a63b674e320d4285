"""`pubsub topic list`, `create`, `purge` and `delete`: topics as objects."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pubsub import console
from pubsub.cli.operating import SENDER, confirm
from pubsub.cli.topic_settings import given_settings
from pubsub.client.requests import Proxies
from pubsub.client.topic_deletion import delete, find_deletion
from pubsub.client.topic_objects import check_creation, create, find_purge, purge
from pubsub.client.topic_settings import check_settings
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.protocol.topic_settings import DROP_FORM, EXPIRE_FORM, KEEP_FORM

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patience = Annotated[
    float, typer.Option("--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for the answer.")
]


@takes_settings(ClientSettings, REACHING)
def list_topics(
    loaded: Loaded[ClientSettings],
    wait: Annotated[
        float,
        typer.Option(
            min=0.05, max=600, metavar="SECONDS", help="Time limit for the proxies, and again for the servers."
        ),
    ] = 2.0,
    as_json: AsJson = False,
) -> None:
    """List the topics, with their servers, messages, subscribers, consumer groups and settings.

    Figures of a topic are question marks (null in JSON) while its server does not answer. The key needs the right to
    see the status.
    """
    from pubsub.cli.reports import gather

    with naming_default(loaded):
        found = gather(loaded.settings, wait)
    groups = _groups(found)
    rows = [_row(topic, len(groups.get(topic["topic"], ()))) for topic in found["topics"]]
    if as_json:
        console.print_json(rows)
        return
    columns = ("topic", "server", "messages", "bytes", "subscribers", "groups", "keep", "drop", "expire")
    table = console.table(*columns, title="Topics")
    for row in rows:
        figures = ["?"] * 7
        if row["records"] is not None:
            figures = [
                f"{row['records']:,}",
                console.size(row["bytes"]),
                f"{row['subscribers']:,}",
                f"{row['groups']:,}",
            ]
            figures += [row[name] or "" for name in ("keep", "drop", "expire")]
        table.add_row(row["topic"], " ".join(row["servers"]) or "none yet", *figures)
    console.print_table(table)


def _groups(found: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of each topic's consumer groups, from the reports of all servers."""
    groups: dict[str, set[str]] = {}
    for server in found["servers"]:
        for topic, held in ((server["report"] or {}).get("topics") or {}).items():
            groups.setdefault(topic, set()).update(one["name"] for one in held.get("groups", ()))
    return groups


def _row(topic: dict[str, Any], groups: int) -> dict[str, Any]:
    known = topic["unknown_seconds"] is None
    return {
        "topic": topic["topic"],
        "servers": topic["owners"],
        "records": topic["records"] if known else None,
        "bytes": topic["bytes"] if known else None,
        "subscribers": len(topic["subscribers"]) if known else None,
        "groups": groups if known else None,
        "keep": topic["keep"] if known else None,
        "drop": topic["drop"] if known else None,
        "expire": topic["expire"] if known else None,
    }


@takes_settings(ClientSettings, REACHING)
def create_topic(
    loaded: Loaded[ClientSettings],
    name: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]…", help=f"keep={KEEP_FORM}; drop={DROP_FORM}; expire={EXPIRE_FORM}."),
    ] = None,
    patience: Patience = 10.0,
    as_json: AsJson = False,
) -> None:
    """Create a topic, with settings if they are given.

    A topic that exists with the same settings is no error. One with other settings is: `pubsub topic set` changes them.
    The command returns when every proxy that answers knows the topic. The key needs the right to operate.
    """
    given = given_settings(values or [])
    check_creation(name, given)
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        found, new = create(proxies, SENDER, name, given)
    settings = {"keep": found.keep, "drop": found.drop, "expire": found.expire}
    facts = {"topic": name, **settings, "version": found.version, "new": new}
    done = "created" if new else "exists already with these settings"
    console.report(as_json, facts, f"{name}: {done}, {found}")


@takes_settings(ClientSettings, REACHING)
def purge_topic(
    loaded: Loaded[ClientSettings],
    name: Topic,
    unread: Annotated[
        bool, typer.Option("--unread", help="Delete messages that a subscriber has not acknowledged, too.")
    ] = False,
    patience: Patience = 10.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the stored messages of a topic.

    Without --unread, messages that a subscriber has not acknowledged stay. With --unread they go, too: the next get of
    each such subscriber raises `DataLoss` with the reason "purged". Messages that are put meanwhile stay.

    New readers do not get the messages from now on. The server frees their space after retention_hold_seconds.
    """
    check_settings(name, {})
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        found = find_purge(proxies, SENDER, name, unread=unread)
        unread_by = f" Not acknowledged by every subscriber, and lost to the others: {found.unread:,}."
        what = f"The purge deletes {_count(found.records, 'message')} of {name}."
        confirm(what + (unread_by if found.unread else ""), yes, word=name)
        done = purge(proxies, SENDER, name, found, unread=unread)
    text = f"{name}: {_count(done.records, 'message')} deleted, {done.unread:,} unread"
    console.report(as_json, {"topic": name, "records": done.records, "unread": done.unread}, text)


@takes_settings(ClientSettings, REACHING)
def delete_topic(
    loaded: Loaded[ClientSettings],
    name: Topic,
    force: Annotated[
        bool, typer.Option("--force", help="Delete it although it has subscribers or its server does not answer.")
    ] = False,
    patience: Patience = 10.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a topic with all its messages, settings and subscriptions.

    A topic with subscribers is deleted only with --force: the next get of each raises `DataLoss`. The command needs
    every proxy, and waits for every live server. A server that is away drops the topic when it returns.

    If the command ends with "unavailable", repeat it: the repeat finishes the deletion. The key needs the right to
    operate.
    """
    check_settings(name, {})
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        found = find_deletion(proxies, SENDER, name, force=force)
        what = f"Topic {name} is deleted" + (f", with {_count(found.records, 'message')}." if found else ".")
        lost = ""
        if found and found.subscribers:
            lost = f" Messages that its {_count(found.subscribers, 'subscriber')} did not receive are lost."
        confirm(what + lost, yes, word=name)
        done = delete(proxies, SENDER, name, found, force=force)
    figures = ""
    if done.records is not None and done.subscribers is not None:
        figures = f", with {_count(done.records, 'message')} and {_count(done.subscribers, 'subscriber')}"
    facts = {"topic": name, "records": done.records, "subscribers": done.subscribers}
    console.report(as_json, facts, f"{name}: deleted{figures}")


def _count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
