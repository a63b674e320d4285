"""`pubsub topic …`: operator actions on a topic. A command with consequences prints them and asks first."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from pubsub import console
from pubsub.cli import topic_objects, topic_read, topic_settings, topic_table
from pubsub.cli.abandoning import find_part, find_topics, give_up
from pubsub.cli.operating import Operator, View, cluster, confirm
from pubsub.cli.unsubscribing import end_pattern, end_subscription, find_ending, shown, waiting_for
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, takes_settings
from pubsub.errors import CallerError, NotKnown, NotNow, ServerSilent
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import check_id, check_topic
from pubsub.protocol.patterns import is_pattern

app = typer.Typer(name="topic", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Patience = Annotated[
    float,
    typer.Option(
        "--patience", min=0.05, max=600, metavar="SECONDS", help="Time limit for one answer of a proxy or server."
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", min=0.1, max=86_400, metavar="SECONDS", help="Time limit until the result is visible in the cluster."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

NAMES_SHOWN: Final = 10
"""Topics that the question of abandon --all names."""


@app.callback()
def topic() -> None:
    """List, create, read, purge, delete, move or give up topics, set what is kept, and end subscriptions of others."""


app.command("list")(topic_objects.list_topics)
app.command("create")(topic_objects.create_topic)
app.command("purge")(topic_objects.purge_topic)
app.command("delete")(topic_objects.delete_topic)
app.command("set")(topic_settings.set_settings)
app.command("show")(topic_settings.show)
app.command("read")(topic_read.read)
app.command("times")(topic_read.times)
app.command("table")(topic_table.table)


@app.command()
@takes_settings(ClientSettings, REACHING)
def move(
    loaded: Loaded[ClientSettings],
    name: Topic,
    to: Annotated[str, typer.Option("--to", metavar="SERVER", help="ID of the new owner.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a topic to another server.

    All its messages and subscriptions move too. Puts and gets on the topic wait while it moves; clients repeat them
    automatically. Nothing is lost. If --wait passes, the move continues; repeat the command to check.
    """
    check_topic(name)
    check_id("server ID", to)
    with cluster(loaded, patience, wait) as found:
        view = found.look(name)
        giver = view.owner(name)
        view.address_of(to)
        if giver != to:
            if view.draining(to):
                raise NotNow(f"server {to} is draining and takes no topics until pubsub server drain {to} --stop")
            confirm(
                f"Topic {name} moves from {giver} to {to}. Puts and gets on it wait until it has arrived; nothing is"
                f" lost. If {to} dies meanwhile, they wait until it is back, or until you give it up with pubsub"
                " topic abandon.",
                yes,
            )
            move_topic(found, view, name, giver, to)
    facts = {"topic": name, "from": giver, "to": to, "moved": giver != to}
    console.report(as_json, facts, f"{name} is at {to}" + ("" if giver == to else f", moved from {giver}"))


def move_topic(found: Operator, view: View, name: str, giver: str, to: str) -> None:
    """Move a topic, and wait until every proxy that answers knows the new owner.

    Raises:
        NotKnown, NotNow, ServerSilent, Unavailable: it was not moved, with the reason.
    """
    view.address_of(to)

    def tell(*, again: bool = False) -> None:
        now = found.look(name)
        if to in {holder.server for holder in now.holders(name)}:
            return  # The topic has arrived; the giver has only its own copy to delete.
        # A standby may have taken over since the last request, at another address.
        answer = found.operate(giver, now, "move", topic=name, server=to, address=now.address_of(to))
        reason = answer.reason.replace("_", " ")
        if answer.outcome is Outcome.MOVED and not again:
            raise NotNow(f"topic {name} is already moving to {answer.reason}; wait until it has arrived")
        if answer.outcome is Outcome.REFUSED:
            raise NotNow(f"topic {name} cannot move now: {reason}")
        if answer.outcome is Outcome.UNKNOWN and not found.look(name).held_by(name, to):
            raise NotKnown(f"topic {name} is not held by {giver} any more; repeat the command")

    def tell_again() -> None:
        with suppress(ServerSilent):  # One of the two servers restarts, or its standby takes over.
            tell(again=True)

    tell()
    found.wait(lambda: found.look(name).held_by(name, to), "move", name, again=tell_again)


@app.command()
@takes_settings(ClientSettings, REACHING)
def unsubscribe(
    loaded: Loaded[ClientSettings],
    name: Topic,
    subscriber: Annotated[
        str, typer.Option("--subscriber", metavar="ID", help="ID of the subscriber, as pubsub status shows it.")
    ],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End the subscription of a client that will not come back.

    The ID is that of a client, or the name of a Spark query: its option `subscription`, or its `groupIdPrefix` if no
    other query has it. All messages that wait for it are given up, and the server can delete them. If the client comes
    back, its next get raises `Superseded`, or after a subscribe `DataLoss`.

    In the place of a topic, a pattern such as `orders.>` ends that pattern of the client. Its subscriptions to topics
    that match end, too, except those that another of its patterns brings. Every proxy must answer.
    """
    if is_pattern(check_topic(name)):
        _end_pattern(loaded, name, subscriber, patience, wait, yes=yes, as_json=as_json)
        return
    with cluster(loaded, patience, wait) as found:
        view = found.look(name)
        owner = view.owner(name)
        key, waiting = waiting_for(found, view, name, owner, subscriber)
        subscriber = shown(key)
        confirm(
            f"The subscription of {subscriber} to {name} ends, and its {waiting:,} waiting records are given up."
            " If it comes back, it must subscribe again, and receives only later messages.",
            yes,
        )
        end_subscription(found, view, name, owner, key)
    console.report(
        as_json,
        {"topic": name, "subscriber": subscriber, "server": owner, "given_up": waiting},
        f"{subscriber} is not subscribed to {name} any more; {waiting:,} records were given up",
    )


def _end_pattern(
    loaded: Loaded[ClientSettings],
    pattern: str,
    subscriber: str,
    patience: float,
    wait: float,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    with cluster(loaded, patience, wait) as found:
        ending = find_ending(found, pattern, subscriber)
        count, given_up = len(ending.waiting), ending.given_up
        confirm(
            f"The pattern {pattern} of {subscriber} ends, with its subscriptions to {count:,} topics, and {given_up:,}"
            " waiting records are given up. If it comes back, it must subscribe again, and receives only later"
            " messages.",
            yes,
        )
        topics = end_pattern(found, ending)
    console.report(
        as_json,
        {"topic": pattern, "subscriber": subscriber, "topics": topics, "given_up": given_up},
        f"{subscriber} has no pattern {pattern} any more; {given_up:,} records of {count:,} topics were given up",
    )


@app.command()
@takes_settings(ClientSettings, REACHING)
def abandon(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Option("--server", metavar="ID", help="ID of the lost server.")],
    name: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Name of the topic; --all takes none.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Give up the server's part of each of its topics.")] = False,
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up a lost server's part of a topic, or with --all of each topic.

    The other servers then continue without that part. Messages that only the lost server has are lost, even if it comes
    back. Its part is then quarantined, and pubsub server export --quarantined writes that part to files.

    All proxies must answer. The server must be unconnected. Without --all it may also have lost the topic because its
    store is an older copy. If the command was interrupted, run it again.
    """
    if (name is None) is not every:
        raise CallerError("name one TOPIC, or give --all without a topic")
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        if name is None:
            _abandon_all(found, server, yes, as_json)
            return
        check_topic(name)
        part = find_part(found, name, server)
        confirm(
            f"Server {server}'s part of topic {name} is given up: records that only this server has are lost, and"
            " publishers and subscribers that only it knows start again on another server. If it comes back, its"
            " part is quarantined.",
            yes,
            word=name,
        )
        give_up(found, part)
    waiting = sorted(part.waiting)
    console.report(
        as_json,
        {"topic": name, "server": server, "logs": part.logs, "taken_back": waiting},
        f"{name} is given up at {server}" + (f"; {', '.join(waiting)} took it back" if waiting else ""),
    )


def _abandon_all(found: Operator, server: str, yes: bool, as_json: bool) -> None:
    """Give up a lost server's part of each topic. If one fails, those before it are given up.

    Raises:
        NotKnown: no process knows of a topic there.
    """
    names = find_topics(found, server)
    if not names:
        raise NotKnown(f"no process knows of a topic at server {server}; then run pubsub server forget {server}")
    shown = ", ".join(names[:NAMES_SHOWN]) + (" and more" if len(names) > NAMES_SHOWN else "")
    confirm(
        f"Server {server}'s parts of {len(names):,} topics are given up: {shown}. Records that only this server has"
        " are lost, and publishers and subscribers that only it knows start again on another server. If it comes"
        " back, its parts are quarantined.",
        yes,
        word=server,
    )
    done: list[dict[str, Any]] = []
    while names:
        for name in names:
            part = find_part(found, name, server)
            give_up(found, part)
            done.append({"topic": name, "logs": part.logs, "taken_back": sorted(part.waiting)})
        names = sorted(set(find_topics(found, server)) - {row["topic"] for row in done})  # A report has limits.
    text = f"{len(done):,} topics are given up at {server}; next, run pubsub server forget {server}"
    console.report(as_json, {"server": server, "topics": done}, text)
