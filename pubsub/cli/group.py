"""`pubsub group …`: look at consumer groups, and act on them (docs/how-to/share-work.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from pubsub import console
from pubsub.base.plurals import counted, verb
from pubsub.cli.operating import SENDER, confirm
from pubsub.client import group_requests
from pubsub.client.group_facts import GroupFacts, GroupLetter, MemberFacts
from pubsub.client.group_operator_calls import changed_values, check_group, check_ids
from pubsub.client.requests import Proxies
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, naming_default, takes_settings
from pubsub.errors import CallerError, NotNow
from pubsub.protocol.names import check_id, check_topic, is_hex

app = typer.Typer(name="group", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

RANGES_SHOWN: Final = 3
"""Claimed ranges of a member in the table; --json has more."""

Settings = Loaded[ClientSettings]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group on this topic.")]
Patience = Annotated[
    float, typer.Option("--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for the answer.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def group() -> None:
    """Look at consumer groups with their members and dead letters; release, redrive, change, resume or end them.

    The members of a group share the work of one topic: pubsub client ID process --group NAME.
    """


@contextmanager
def _asking(loaded: Settings, patience: float) -> Iterator[Proxies]:
    with naming_default(loaded), Proxies.of(loaded.settings) as proxies:
        proxies.timeout_seconds = patience
        yield proxies


@app.command("list")
@takes_settings(ClientSettings, REACHING)
def list_groups(
    loaded: Settings,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only groups of it; default: all.")] = None,
    patience: Patience = 10.0,
    as_json: AsJson = False,
) -> None:
    """List the groups of a topic, or of all topics.

    Without TOPIC the key needs the right to see the status; with it, the right to get from the topic, or to operate.
    """
    if topic is not None:
        check_topic(topic)
    with _asking(loaded, patience) as proxies:
        found = (
            group_requests.groups_everywhere(proxies, SENDER)
            if topic is None
            else group_requests.list_groups(proxies, SENDER, topic)
        )
    if as_json:
        console.print_json([asdict(one) for one in found])
        return
    columns = (
        "topic",
        "group",
        "mode",
        "members",
        "waiting",
        "claimed",
        "in doubt",
        "delayed",
        "dead letters",
        "state",
    )
    table = console.table(*columns, title="Consumer groups")
    for one in found:
        mode = f"keyed, {one.parts:,}" if one.parts else "shared"
        members = f"{one.members_heard:,} of {one.members:,} heard"
        figures = (one.waiting, one.claimed, one.in_doubt, one.delayed, one.dead_letters)
        table.add_row(one.topic, one.name, mode, members, *(f"{figure:,}" for figure in figures), _state(one))
    console.print_table(table)


def _state(one: GroupFacts) -> str:
    words = ["suspended"] if one.suspended else []
    return ", ".join([*words, *(["full"] if one.full else [])])


@app.command()
@takes_settings(ClientSettings, REACHING)
def show(loaded: Settings, topic: Topic, name: Name, patience: Patience = 10.0, as_json: AsJson = False) -> None:
    """Print the values and figures of a group. The key needs the right to get from the topic, or to operate."""
    check_group(topic, name)
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
    console.report(as_json, asdict(found), "\n".join(_lines(found)))


def _lines(one: GroupFacts) -> Iterator[str]:
    yield f"{one.name} of {one.topic}: {one} (number {one.number})"
    yield f"made {_time(one.made)}"
    yield f"members: {one.members_heard:,} heard of {one.members:,}, {one.hungry:,} waiting for work"
    yield (
        f"messages: {one.waiting:,} waiting, {one.offered:,} offered, {one.claimed:,} claimed, {one.delayed:,} delayed"
    )
    if one.in_doubt:
        since = "" if one.in_doubt_seconds is None else f", for {one.in_doubt_seconds:.0f} s"
        yield (
            f"in doubt: {counted(one.in_doubt, 'message')} at {counted(one.in_doubt_members, 'silent member')}{since};"
            f" start {verb(one.in_doubt_members, 'it', 'them')} again, or see pubsub group members {one.topic}"
            f" {one.name}"
        )
    yield f"dead letters: {one.dead_letters:,}, {console.size(one.dead_letter_bytes)}"
    if one.full:
        yield "nothing more is claimed, since there are too many dead letters: redrive or drop some"
    if one.suspended:
        yield (
            "it is suspended, since its server's store was restored from a copy:"
            f" pubsub group resume {one.topic} {one.name}"
        )


def _time(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


@app.command()
@takes_settings(ClientSettings, REACHING)
def members(loaded: Settings, topic: Topic, name: Name, patience: Patience = 10.0, as_json: AsJson = False) -> None:
    """List the members of a group, with the messages that each holds.

    A message in doubt is claimed by a member that is silent. The member's state directory says if its effect happened,
    so start it again; pubsub group release gives the message to another member.
    """
    check_group(topic, name)
    with _asking(loaded, patience) as proxies:
        found = group_requests.list_members(proxies, SENDER, topic, name)
    if as_json:
        console.print_json([asdict(one) for one in found])
        return
    columns = ("member", "store", "heard", "claimed", "in doubt", "offered", "held for", "ranges")
    table = console.table(*columns, title=f"Members of {name} of {topic}")
    for one in found:
        figures = (f"{figure:,}" for figure in (one.claimed, one.in_doubt, one.offered))
        held = "" if one.held_seconds is None else f"{one.held_seconds:.0f} s"
        shown = " ".join(one.ranges[:RANGES_SHOWN]) + (" …" if len(one.ranges) > RANGES_SHOWN else "")
        table.add_row(one.client, one.store, _heard(one), *figures, held, shown)
    console.print_table(table)


def _heard(one: MemberFacts) -> str:
    ago = "" if one.heard_seconds is None else f"{one.heard_seconds:.0f} s ago"
    if one.heard:
        return "yes"
    return f"left {ago}".strip() if one.left else f"silent, {ago or 'since the server started'}"


@app.command("dead-letters")
@takes_settings(ClientSettings, REACHING)
def dead_letters(
    loaded: Settings, topic: Topic, name: Name, patience: Patience = 10.0, as_json: AsJson = False
) -> None:
    """List the dead letters of a group: messages that its members failed on too often, or rejected.

    A letter of the kind doubt is a message in doubt for long; its member may still come back. One of the kind waiting
    is redriven, and not done yet.
    """
    check_group(topic, name)
    with _asking(loaded, patience) as proxies:
        group_requests.find_group(proxies, SENDER, topic, name)
        found = group_requests.list_letters(proxies, SENDER, topic, name)
    if as_json:
        console.print_json([asdict(one) for one in found])
        return
    table = console.table(
        "id", "kind", "publisher", "stamp", "bytes", "attempts", "reason", title=f"Dead letters of {name} of {topic}"
    )
    for one in found:
        table.add_row(*_letter(one))
    console.print_table(table)


def _letter(one: GroupLetter) -> Sequence[str]:
    return (one.id, one.kind, one.publisher, _time(one.stamp), f"{one.bytes:,}", f"{one.attempts:,}", one.reason)


@app.command()
@takes_settings(ClientSettings, REACHING)
def release(
    loaded: Settings,
    topic: Topic,
    name: Name,
    member: Annotated[str, typer.Option("--member", metavar="ID", help="Client ID of the member.")],
    store: Annotated[
        str, typer.Option("--store", metavar="HEX", help="Its state directory, if several have this client ID.")
    ] = "",
    lost_disk: Annotated[
        bool, typer.Option("--lost-disk", help="Its state directory is lost for good: forget the member, too.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while the member is heard.")] = False,
    patience: Patience = 10.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up what a silent member holds, so that other members do it.

    Those messages are delivered with the mark doubtful: their effects may have happened at the silent member. If the
    process can be started again on its state directory, do that instead; then nothing happens twice. The key needs the
    right to operate.
    """
    check_group(topic, name)
    check_id("client ID", member)
    if store and not is_hex(store):
        raise CallerError(f"--store is 16 hexadecimal digits, as pubsub group members shows them, not {store!r:.40}")
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
        seen = group_requests.list_members(proxies, SENDER, topic, name)
        one = group_requests.find_member(seen, topic, name, member, store)
        if one.heard and not force:
            raise group_requests.heard(name, one)
        forgets = f" The group forgets the member {member}." if lost_disk else ""
        claims = (
            f"{counted(one.claimed, 'message')} that {member} has claimed {verb(one.claimed, 'goes', 'go')} to other"
            f" members of group {name} of {topic}, marked as doubtful: an effect may have happened, and then happens"
            " twice."
        )
        if one.claimed or lost_disk:
            confirm((claims if one.claimed else f"{member} has claimed nothing.") + forgets, yes)
        done = group_requests.release(proxies, SENDER, topic, found, one, lost_disk=lost_disk, force=force)
    facts = {"topic": topic, "group": name, "member": member, "store": one.store, "released": done}
    console.report(as_json, facts, f"released {counted(done, 'message')} of {member} to group {name} of {topic}")


@app.command()
@takes_settings(ClientSettings, REACHING)
def redrive(
    loaded: Settings,
    topic: Topic,
    name: Name,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]…", help="IDs of the letters; default: all of the group.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the letters instead.")] = False,
    patience: Patience = 10.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Hand dead letters of a group to its members again, with no attempts counted.

    With --drop they are deleted, which asks first. The key needs the right to operate.
    """
    check_group(topic, name)
    chosen = list(ids or ())
    check_ids(chosen)
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
        if chosen:
            group_requests.check_letters(group_requests.list_letters(proxies, SENDER, topic, name), topic, name, chosen)
        if drop:
            number = len(chosen) or found.dead_letters
            letters = f"{counted(number, 'dead letter')} of group {name} of {topic}"
            confirm(f"{letters} {verb(number, 'is', 'are')} deleted, with all contents.", yes)
        done = group_requests.redrive(proxies, SENDER, topic, found, chosen, drop=drop)
    word = "dropped" if drop else "redriven"
    facts = {"topic": topic, "group": name, word: done}
    console.report(as_json, facts, f"{word} {counted(done, 'dead letter')} of {name} of {topic}")


@app.command()
@takes_settings(ClientSettings, REACHING)
def end(
    loaded: Settings,
    topic: Topic,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also while messages are in doubt.")] = False,
    patience: Patience = 10.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a group for all its members.

    Its waiting messages and its dead letters are given up. A member learns of it with its next call. A group with
    messages in doubt ends only with --force. The key needs the right to operate.
    """
    check_group(topic, name)
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
        if found.in_doubt and not force:
            raise group_requests.in_doubt(proxies, SENDER, topic, found)
        doubt = f" In doubt: {counted(found.in_doubt, 'message')}." if found.in_doubt else ""
        confirm(
            f"Group {name} of {topic} ends. Given up: {counted(found.waiting, 'waiting message')} and"
            f" {counted(found.dead_letters, 'dead letter')}.{doubt}",
            yes,
            word=name,
        )
        group_requests.end(proxies, SENDER, topic, found, force=force)
    facts = {"topic": topic, "group": name, "waiting": found.waiting, "dead_letters": found.dead_letters}
    console.report(as_json, facts | {"ended": True}, f"group {name} of {topic} has ended")


@app.command()
@takes_settings(ClientSettings, REACHING)
def resume(
    loaded: Settings,
    topic: Topic,
    name: Name,
    redeliver: Annotated[
        bool, typer.Option("--redeliver", help="Hand out all messages of the copy, marked as doubtful.")
    ] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Pass over all messages of the copy.")] = False,
    patience: Patience = 10.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Resume a group that was suspended, because its server's store was restored from a copy.

    The copy does not know which messages were done after it was made. With --redeliver all that waited in the copy is
    delivered with the mark doubtful. With --skip it is passed over. The key needs the right to operate.
    """
    check_group(topic, name)
    if redeliver is skip:
        raise CallerError("give one of --redeliver and --skip")
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
        if not found.suspended:
            raise NotNow(f"group {name} of {topic} is not suspended; there is nothing to resume")
        confirm(
            f"{counted(found.waiting, 'message')} of group {name} of {topic} {verb(found.waiting, 'is', 'are')} "
            + ("passed over; some may never have been done." if skip else "handed out; some may be done twice."),
            yes,
        )
        done = group_requests.resume(proxies, SENDER, topic, found, skip=skip)
    word = "skipped" if skip else "redelivered"
    console.report(
        as_json,
        {"topic": topic, "group": name, word: done},
        f"group {name} of {topic} is resumed, with {counted(done, 'message')} {word}",
    )


@app.command()
@takes_settings(ClientSettings, REACHING)
def change(
    loaded: Settings,
    topic: Topic,
    name: Name,
    on_lost: Annotated[
        str | None,
        typer.Option("--on-lost", metavar="wait|redeliver", help="What becomes of a silent member's claims."),
    ] = None,
    lost_seconds: Annotated[
        float | None,
        typer.Option("--lost-seconds", metavar="SECONDS", help="Silence after which redeliver gives them up."),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", metavar="N", help="Attempts after which a message is a dead letter.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="keyed", help="Make a shared group keyed, while nothing is claimed.")
    ] = None,
    parts: Annotated[int | None, typer.Option("--parts", metavar="N", help="Parts of the keyed group.")] = None,
    patience: Patience = 10.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change values of a group.

    With --on-lost redeliver the messages that a member has claimed go to another one when it is silent for
    --lost-seconds. They may then happen twice, so the change asks first. The key needs the right to operate.
    """
    check_group(topic, name)
    values = changed_values(on_lost, lost_seconds, attempts, mode, parts)
    with _asking(loaded, patience) as proxies:
        found = group_requests.find_group(proxies, SENDER, topic, name)
        if _gives_up_sooner(found, values):
            confirm(
                f"Messages that a member of group {name} of {topic} has claimed go to other members when it is silent"
                " for that long. They are marked as doubtful, and may happen twice.",
                yes,
            )
        now = group_requests.change(proxies, SENDER, topic, found, values)
    console.report(as_json, asdict(now), f"{name} of {topic}: {now}")


def _gives_up_sooner(found: GroupFacts, values: dict[str, Any]) -> bool:
    if values.get("on_lost", found.on_lost) != "redeliver":
        return False
    return found.on_lost == "wait" or values.get("lost_ms", found.lost_seconds * 1000) < found.lost_seconds * 1000
