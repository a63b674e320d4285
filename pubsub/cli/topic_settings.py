"""`pubsub topic set` and `pubsub topic show`: how much of a topic is kept, and how much is put a second."""

from __future__ import annotations

from typing import Annotated

import typer

from pubsub import console
from pubsub.cli.operating import SENDER, confirm
from pubsub.client.requests import Proxies
from pubsub.client.topic_settings import TopicSettings, change_settings, check_settings, read_settings
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import CallerError
from pubsub.protocol.topic_settings import (
    BYTES_FORM,
    DROP_FORM,
    EXPIRE_FORM,
    KEEP_FORM,
    LATEST,
    RATE_FORM,
    SETTINGS,
    TOMBSTONES_FORM,
    parse_keep,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Patience = Annotated[
    float, typer.Option("--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for the answer.")
]


@takes_settings(ClientSettings, REACHING)
def set_settings(
    loaded: Loaded[ClientSettings],
    name: Topic,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help=f"keep={KEEP_FORM}; drop={DROP_FORM}; expire={EXPIRE_FORM}; tombstones={TOMBSTONES_FORM}; "
            f"rate={RATE_FORM}; bytes={BYTES_FORM}. An empty value is the default.",
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="VERSION", help="Change only these settings, as pubsub topic show prints them."),
    ] = None,
    patience: Patience = 10.0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set how much of a topic stays beyond the messages that subscribers need, and how much is put in a second.

    A topic that does not exist is created. Deleted messages do not come back, so a change that can delete some asks
    first. The key needs the right to operate.
    """
    given = given_settings(values)
    check_settings(name, given)
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        if consequences := _consequences(proxies, name, given):
            confirm(consequences, yes)
        _print(change_settings(proxies, SENDER, name, given, base), as_json)


def _consequences(proxies: Proxies, name: str, given: dict[str, str | None]) -> str:
    """Return sentences about the messages that a change may delete; "" if it deletes none."""
    present = read_settings(proxies, SENDER, name)
    keep = present.keep if given["keep"] is None else given["keep"]
    drop = present.drop if given["drop"] is None else given["drop"]
    lets_go = not _keeps_as_much_as(keep, present.keep)
    sentences = []
    if lets_go:
        meant = f"keep={keep}" if keep else "the default"
        beyond = "earlier messages of each key are" if _is_latest(keep) else "messages beyond it are"
        sentences.append(f"{name} has keep={present.keep}. With {meant}, acknowledged {beyond} deleted.")
    if drop not in {"", "never"} and (lets_go or drop != present.drop):
        sentences.append(f"Messages beyond keep and drop={drop} go although a subscriber has not received them.")
    if sentences:
        sentences.append("Deleted messages do not come back.")
    expire = given.get("expire")
    if expire not in {None, "", "never"} and not _keeps_as_much_as(expire, present.expire):
        sentences.append(f"Messages older than expire={expire} are not delivered any more.")
    return " ".join(sentences)


def _keeps_as_much_as(new: str, old: str) -> bool:
    """Return True if one text of `keep` lets nothing go that the other keeps; False if either cannot be read here."""
    try:  # An empty text is the default of the server, which may be larger than the built-in one.
        return new == old or parse_keep(new).keeps_as_much_as(parse_keep(old))
    except ValueError:
        return False


def _is_latest(keep: str) -> bool:
    try:
        return parse_keep(keep) == LATEST
    except ValueError:
        return False


def given_settings(values: list[str]) -> dict[str, str | None]:
    """Return each setting by name; None for one that is not given.

    Raises:
        CallerError: a word is not NAME=VALUE, or a name is unknown or given twice.
    """
    found: dict[str, str | None] = dict.fromkeys(SETTINGS)
    for word in values:
        name, equals, value = word.partition("=")
        if not equals or name not in found:
            known = " or ".join(f"{one}=VALUE" for one in found)
            raise CallerError(f"{word[:60]!r} is no setting of a topic: write {known}")
        if found[name] is not None:
            raise CallerError(f"{name} is given twice; give it once")
        found[name] = value
    return found


@takes_settings(ClientSettings, REACHING)
def show(loaded: Loaded[ClientSettings], name: Topic, patience: Patience = 10.0, as_json: AsJson = False) -> None:
    """Print the settings of a topic; the defaults if it does not exist.

    The key needs the right to get from the topic, or to operate.
    """
    check_settings(name, {})
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        _print(read_settings(proxies, SENDER, name), as_json)


def _print(found: TopicSettings, as_json: bool) -> None:
    facts = {name: getattr(found, name) for name in (*SETTINGS, "version", "conflict", "sources")}
    lines = [f"{found.topic}: {found} (version {found.version or 'none'})"]
    lines += [f"{name} is from {found.sources[name]}" for name in SETTINGS if "default" in found.sources.get(name, "")]
    if not found.sources:
        lines.append("no server holds this topic yet; a default of the servers may hold for it")
    if found.conflict:
        lines.append(
            "two servers had different settings when they merged this topic, and both stay in force: set the right ones"
        )
    console.report(as_json, {"topic": found.topic, **facts}, "\n".join(lines))
