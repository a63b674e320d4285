"""`pubsub topic …`: operator actions on a topic. A command with consequences prints them and asks first."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer

from pubsub import console
from pubsub.cli.operating import Holder, Operator, View, cluster, confirm
from pubsub.client.requests import reason_of
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings
from pubsub.console.options import REACHING, takes_settings
from pubsub.errors import NotKnown, NotNow, ServerSilent, Unavailable
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import check_id, check_topic, may_be_one_server, parse_endpoint

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


@app.callback()
def topic() -> None:
    """Move or give up topics, and end subscriptions of lost clients."""


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

    All messages that wait for the client are given up, and the server can delete them. If the client comes back, its
    next get raises `Superseded`.
    """
    check_topic(name)
    with cluster(loaded, patience, wait) as found:
        view = found.look(name)
        owner = view.owner(name)
        waiting = waiting_for(found, view, name, owner, subscriber)
        confirm(
            f"The subscription of {subscriber} to {name} ends, and its {waiting:,} waiting records are given up."
            " If it comes back, it must subscribe again, and receives only later messages.",
            yes,
        )
        end_subscription(found, view, name, owner, subscriber)
    console.report(
        as_json,
        {"topic": name, "subscriber": subscriber, "server": owner, "given_up": waiting},
        f"{subscriber} is not subscribed to {name} any more; {waiting:,} records were given up",
    )


def waiting_for(found: Operator, view: View, name: str, owner: str, subscriber: str) -> int:
    """Return the number of records that wait for a subscriber.

    Raises:
        NotKnown: the topic has no such subscriber.
    """
    facts = found.server_report(owner, view, name)["topics"].get(name, {"subscribers": {}})["subscribers"]
    if subscriber not in facts:
        raise NotKnown(f"topic {name} has no subscriber {subscriber}; pubsub status --json lists the subscribers")
    return int(facts[subscriber]["waiting"])


def end_subscription(found: Operator, view: View, name: str, owner: str, subscriber: str) -> None:
    """End a subscription, and wait until it has ended.

    Raises:
        NotKnown, NotNow, ServerSilent, Unavailable: it has not ended, with the reason.
    """

    def ended() -> bool:
        held = found.server_report(owner, found.look(name), name)["topics"].get(name)
        return held is not None and subscriber not in held["subscribers"]

    answer = found.operate(owner, view, "unsubscribe", topic=name, subscriber=subscriber)
    if answer.outcome is Outcome.MOVED:
        raise NotNow(f"topic {name} is moving to another server; repeat this command when it has arrived")
    if answer.outcome is Outcome.UNKNOWN:
        raise NotKnown(f"topic {name} is not held by {owner} any more; repeat this command")
    if answer.outcome is not Outcome.SUCCESS:
        raise Unavailable("unsubscribe", name, found.patience, answer.reason.replace("_", " "))
    found.wait(ended, "unsubscribe", name)


@app.command()
@takes_settings(ClientSettings, REACHING)
def abandon(
    loaded: Loaded[ClientSettings],
    name: Topic,
    server: Annotated[str, typer.Option("--server", metavar="ID", help="ID of the lost server.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up a lost server's part of a topic.

    The other servers then continue without that part. Messages that only the lost server has are lost, even if it comes
    back. Its part is then quarantined, and pubsub server export --quarantined writes that part to files.

    All proxies must answer. The server must be unconnected, or must have lost the topic because its store is an older
    copy. If the command was interrupted, run it again.
    """
    check_topic(name)
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look(name)
        held = found.server_report(server, view, name)["topics"] if view.proxies_of(server) else {}
        _may_give_up(view, name, server, held, patience)
        reports = {one: found.server_report(one, view, name)["topics"].get(name, {}) for one in view.live()}
        lost = _lost(view, name, server, reports)
        waiting = _waiting(view, server, reports)
        if not lost and not waiting:
            silent_servers = any(
                not facts.get("announced", facts.get("heard", True)) for facts in view.away(server).values()
            )
            hint = f"; if its disk is lost: pubsub server forget {server}" if silent_servers else ""
            raise NotKnown(f"no process knows of topic {name} at server {server}, so there is nothing to give up{hint}")
        confirm(
            f"Server {server}'s part of topic {name} is given up: records that only this server has are lost, and"
            " publishers and subscribers that only it knows start again on another server. If it comes back, its"
            " part is quarantined.",
            yes,
            word=name,
        )
        tell = partial(_give_up_all, found, view, name, server, lost, bool(waiting))
        tell()
        found.wait(lambda: _is_done(found, name, server, lost, waiting), "abandon", name, again=tell)
    logs = sorted(holder.log for holder in lost if holder.log)
    console.report(
        as_json,
        {"topic": name, "server": server, "logs": logs, "taken_back": sorted(waiting)},
        f"{name} is given up at {server}" + (f"; {', '.join(sorted(waiting))} took it back" if waiting else ""),
    )


def _give_up_all(found: Operator, view: View, name: str, server: str, lost: Iterable[Holder], waiting: bool) -> None:
    """Make every proxy forget the holder, and tell the servers that it is given up."""
    for holder in lost:
        _give_up(found, name, holder, view.address_of_store(holder.store))
    for address in (view.addresses(server) or {""}) if waiting else ():
        _give_up(found, name, Holder(server, "", ""), address)


def _waiting(view: View, server: str, reports: dict[str, dict[str, Any]]) -> set[str]:
    """Return the servers that froze the topic for a transfer to this one: the stored address has its ID, or is its
    address.
    """
    addresses = view.addresses(server)

    def is_for(frozen: str) -> bool:
        named = parse_endpoint(frozen)[0]
        return named == server if named else any(may_be_one_server(frozen, address) for address in addresses)

    return {one for one, facts in reports.items() if facts.get("frozen") and is_for(facts["frozen"])}


def _is_done(found: Operator, name: str, server: str, lost: set[Holder], waiting: set[str]) -> bool:
    """Return True if every proxy has forgotten the holder and no server waits for it."""
    view = found.look(name)
    if not _is_given_up(view, name, server, lost):
        return False
    connected = [one for one in waiting if view.proxies_of(one)]
    reports = {one: found.server_report(one, view, name)["topics"].get(name, {}) for one in connected}
    return not _waiting(view, server, reports)


def _may_give_up(view: View, name: str, server: str, held: dict[str, Any], patience: float) -> None:
    if view.silent:
        silent = "; ".join(f"{address}: {reason}" for address, reason in view.silent.items())
        raise Unavailable("abandon", name, patience, f"every proxy must answer, start or reach this one: {silent}")
    if view.proxies_of(server) and (name in held or any(holder.server == server for holder in view.holders(name))):
        raise NotNow(f"server {server} is connected to a proxy and holds {name}; stop it first if its part is lost")


def _lost(view: View, name: str, server: str, reports: dict[str, Any]) -> set[Holder]:
    """Return the logs to give up: those that proxies know, and those that only other servers know."""
    known = {holder for holder in view.holders(name) if holder.server == server} | view.given_up(name, server)
    told = {log for facts in reports.values() for log, other in facts.get("rivals", {}).items() if other == server}
    lost = known | {Holder(server, "", log) for log in told - {holder.log for holder in known}}
    return lost or ({Holder(server, "", "")} if view.doubted(name, server) else set())


def _give_up(found: Operator, name: str, holder: Holder, address: str) -> None:
    facts = {"server": holder.server, "store": holder.store, "log": holder.log, "address": address}
    failed = []
    for proxy, answer in found.operate_all("abandon", topic=name, **facts).items():
        if isinstance(answer, Status) and answer.outcome is Outcome.BUSY:
            raise NotNow(
                f"server {holder.server} is connected to a proxy again; repeat this command if its part is still lost"
            )
        if not isinstance(answer, Status) or answer.outcome is not Outcome.SUCCESS:
            failed.append(f"{proxy}: {reason_of(answer)}")
    if failed:
        raise Unavailable(
            "abandon", name, found.patience, f"not stored by every proxy; repeat the command: {'; '.join(failed)}"
        )


def _is_given_up(view: View, name: str, server: str, lost: set[Holder]) -> bool:
    dead = {holder.log for holder in lost} - {""}
    return all(
        dead <= {row["log"] for row in report["abandoned"] if row["topic"] == name}
        and not view.doubted(name, server)
        and not any(h["server"] == server for row in report["topics"] if row["topic"] == name for h in row["holders"])
        for report in view.answered.values()
    )
