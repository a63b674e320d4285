"""`pubsub server …`: adds the commands that need the whole cluster or a stopped server's store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from pubsub import console
from pubsub.cli.operating import Operator, View, cluster, confirm
from pubsub.cli.topic import AsJson, Patience, Wait, Yes, move_topic
from pubsub.client.requests import reason_of
from pubsub.config.loading import Loaded
from pubsub.config.settings import ClientSettings, ServerSettings
from pubsub.console.options import (
    REACHING,
    KeyFile,
    OldDirectory,
    ProxiesFile,
    ProxyAddresses,
    ProxyKeys,
    one_directory,
    read,
    takes_settings,
)
from pubsub.errors import InvalidName, NotKnown, NotNow, PubsubError, Unavailable
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import check_id, is_hex
from pubsub.server.commands import Store, app

__all__ = ["app"]


@app.command()
@takes_settings(ClientSettings, REACHING)
def drain(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of the server.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="Let the server take topics again; moved topics stay where they are.")
    ] = False,
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a server no new topics, and move its topics away.

    The topics move one by one to the servers that hold the fewest. The server stays empty over restarts until --stop.
    --wait limits the time for each topic. To continue an interrupted drain, run the command again.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        view.address_of(server)
        if stop:
            stop_draining(found, view, server)
            console.report(as_json, {"server": server, "draining": False}, f"{server} takes topics again")
            return
        held = found.server_report(server, view)["topics"]
        others = sorted(set(view.receivers()) - {server})
        if held and not others:
            raise NotNow(
                f"no other connected server takes topics, so {server} keeps its {len(held):,}; start one first"
            )
        confirm(
            f"{server} takes no more topics until pubsub server drain {server} --stop. Its {len(held):,} topics"
            f" move to {', '.join(others) or 'no server'}. Puts and gets on a topic wait while it moves.",
            yes,
        )
        moved = drain_server(found, view, server, quiet=as_json)
    facts = {"server": server, "draining": True, "moved": moved}
    console.report(as_json, facts, f"{server} is drained: {len(moved):,} topics were moved")


def stop_draining(found: Operator, view: View, server: str) -> None:
    """Let a server take topics again, and wait until the proxies know.

    Raises:
        ServerSilent, Unavailable: the server did not, with the reason.
    """
    _tell(found, view, server, stop=1)
    found.wait(lambda: not found.look().draining(server), "drain --stop", server)


def drain_server(found: Operator, view: View, server: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Give a server no new topics, move its topics away, and return the moves. `quiet` prints no progress.

    Raises:
        NotNow, ServerSilent, Unavailable: not all topics moved, with the reason.
    """
    _tell(found, view, server, stop=0)
    found.wait(lambda: _all_drain(found.look(), server), "drain", server)
    return _move_all(found, server, quiet=quiet)


def _all_drain(view: View, server: str) -> bool:
    """Return True if every proxy that is connected to the server knows that it is draining."""
    return all(
        facts["draining"]
        for report in view.answered.values()
        for facts in report["servers"]
        if facts["id"] == server and facts["alive"]
    )


def _tell(found: Operator, view: View, server: str, stop: int) -> None:
    answer = found.operate(server, view, "drain", stop=stop)
    if answer.outcome is not Outcome.SUCCESS:
        raise Unavailable("drain", server, found.patience, answer.reason.replace("_", " "))


def _move_all(found: Operator, server: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Move topics until the server holds none; return the moves."""
    moved: list[dict[str, Any]] = []
    deadline = time.monotonic() + found.seconds
    while True:
        view = found.look()
        held = found.server_report(server, view)["topics"]
        # The servers merge a contested topic by themselves first. A moved topic that is still listed is being deleted.
        ready = [name for name, facts in sorted(held.items()) if not facts["others"]]
        if not held:
            return moved
        for index, name in enumerate(ready):
            receivers = {name: count for name, count in found.look().receivers().items() if name != server}
            if not receivers:
                raise NotNow(
                    f"no other connected server takes topics, so {server} keeps {len(held):,}; start one first"
                )
            to = min(receivers, key=lambda one: (receivers[one], one))
            started = time.monotonic()
            move_topic(found, found.look(name), name, server, to)
            moved.append({"topic": name, "to": to, "seconds": round(time.monotonic() - started, 3)})
            if not quiet:
                left = len(ready) - index - 1
                typer.echo(f"{name} -> {to} ({moved[-1]['seconds']:.1f} s; {left:,} to go)")
            deadline = time.monotonic() + found.seconds
        if time.monotonic() >= deadline:
            stuck = ", ".join(sorted(held)[:5])
            raise Unavailable("drain", server, found.seconds, f"topics that are being merged or moved already: {stuck}")
        time.sleep(0 if ready else 0.2)


@app.command()
@takes_settings(ClientSettings, REACHING)
def forget(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of the server or of its store.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Confirm that a server's store is lost forever.

    The proxies then stop waiting for the server. Use it when proxies have lost their directories and pubsub status says
    that they wait for the server. All proxies must answer. The command refuses a store that is connected, and a store
    with topics that a proxy knows; for those use pubsub topic abandon. Another store under the same server ID is not
    affected.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        if view.silent:
            silent = "; ".join(f"{address}: {reason}" for address, reason in view.silent.items())
            raise Unavailable("forget", server, patience, f"every proxy must answer, start or reach this one: {silent}")
        stores = view.away(server)
        if not stores:
            if view.proxies_of(server):
                raise NotNow(
                    f"server {server} is connected and cannot be forgotten; stop it first if its store is lost"
                )
            raise NotKnown(f"server {server} is not known to any proxy; pubsub status lists the servers")
        held = sum(facts["topics"] for facts in stores.values())
        if held:
            raise NotNow(
                f"server {server} holds {held:,} topics that proxies know; give them up first: pubsub topic abandon"
            )
        confirm(
            f"The proxies stop waiting for server {server} (store {', '.join(sorted(stores))}). Topics that only it"
            " holds begin empty on another server; messages that wait there for subscribers are lost.",
            yes,
            word=server,
        )
        for store, facts in stores.items():
            _forget(found, str(facts["id"]), store)
        found.wait(lambda: not found.look().away(server), "forget", server)
    console.report(as_json, {"server": server, "stores": sorted(stores)}, f"{server} is forgotten")


def _forget(found: Operator, server: str, store: str) -> None:
    failed = []
    for proxy, answer in found.operate_all("forget", server=server, store=store).items():
        if isinstance(answer, Status) and answer.outcome is Outcome.BUSY:
            raise NotNow(f"server {server} is not forgotten; {proxy} refused: {answer.reason.replace('_', ' ')}")
        if not isinstance(answer, Status) or answer.outcome not in {Outcome.SUCCESS, Outcome.UNKNOWN}:
            failed.append(f"{proxy}: {reason_of(answer)}")
    if failed:
        raise Unavailable(
            "forget", server, found.patience, f"not stored by every proxy; repeat the command: {'; '.join(failed)}"
        )


@app.command()
@takes_settings(ClientSettings, REACHING)
def switch(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of the server.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    as_json: AsJson = False,
) -> None:
    """Make the standby of a server its primary, in order.

    Use it to upgrade one member after the other. Both members stay in sync, and requests wait for a moment.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        before = _members(found, view, server)["member"]
        answer = found.operate(server, view, "switch")
        if answer.outcome is Outcome.REFUSED:
            raise NotNow(f"server {server} has no standby in sync; pubsub status shows the reason")
        if answer.outcome is not Outcome.SUCCESS:
            raise Unavailable("switch", server, found.patience, answer.reason.replace("_", " "))
        found.wait(lambda: _primary_now(found, server) not in {"", before}, "switch", server)
        after = _primary_now(found, server)
    console.report(as_json, {"server": server, "from": before, "to": after}, f"{after} is primary of {server} now")


@app.command()
@takes_settings(ClientSettings, REACHING)
def remove(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of the server.")],
    member: Annotated[str, typer.Option("--member", metavar="MEMBER", help="ID of the lost member, 16 hex digits.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a lost member from a server with a standby.

    Another member can then take its place. Pubsub status shows the IDs of the members. A member in sync cannot be
    removed. The directory of a removed member cannot be used again.
    """
    check_id("server ID", server)
    if not is_hex(member):
        raise InvalidName("member ID", member, "16 lower-case hex digits, as pubsub status shows them")
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        facts = _members(found, view, server)
        if member == facts["member"]:
            raise NotNow(f"member {member} is the primary of server {server}; first run pubsub server switch {server}")
        if member in facts["in_sync"]:
            # The primary would keep the request and remove the member later, when it leaves sync, as in an upgrade.
            raise NotNow(f"member {member} is in sync, so it is running or was a moment ago; stop it first")
        if member in facts["members"]:
            confirm(f"Member {member} of server {server} is removed; the data on its disk becomes useless.", yes)
            if found.operate(server, view, "remove", member=member).outcome is Outcome.REFUSED:
                raise NotNow(f"server {server} does not remove member {member} now; try again later")
            found.wait(
                lambda: member not in _members(found, found.look(), server)["members"], "remove --member", server
            )
    console.report(as_json, {"server": server, "member": member}, f"{member} is not a member of {server}")


@app.command()
@takes_settings(ServerSettings)
def promote(
    loaded: Loaded[ServerSettings],
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Required: accept the loss of messages that this member does not have."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a stopped member the only member of its server.

    This is the last resort, after the members in sync are lost. Give the settings that the member is started with, and
    start it afterwards. The command refuses while a proxy is connected to a primary of the server. It also refuses a
    member in sync, because that one takes over by itself.

    Answered messages that never reached this member are lost. Each subscriber gets one DataLoss error, and publishers
    send their unfinished puts again.
    """
    from pubsub.server.promote import promote as promote_member

    server, directory = loaded.settings.id, loaded.settings.directory
    if not accept_loss:
        raise typer.BadParameter("messages that this member does not have are lost; to accept that, give --accept-loss")

    def agree(in_sync: tuple[str, ...]) -> None:
        had = (
            f"In sync, as proxies know: {', '.join(in_sync)}."
            if in_sync
            else "No proxy knows which members are in sync."
        )
        confirm(
            f"{had} Messages of server {server} that the member in {directory} does not have are lost."
            " Each subscriber of each of its topics gets one DataLoss error, even if nothing is lost for it."
            " If another member comes back, data that only it has is replaced.",
            yes,
            word=server,
        )

    done = promote_member(loaded.settings, agree)
    topics = done.restored.topics
    console.report(
        as_json,
        {"server": server, "member": done.member, "term": done.term, "topics": list(topics)},
        f"{done.member} is the only member of {server}, with {len(topics):,} topics in new logs; start it now",
    )


def _members(found: Operator, view: View, server: str) -> dict[str, Any]:
    """Return a server's report of its members.

    Raises:
        NotKnown: it has no standby.
    """
    facts: dict[str, Any] | None = found.server_report(server, view).get("standby")
    if facts is None:
        raise NotKnown(f"server {server} has no standby, and never had one")
    return facts


def _primary_now(found: Operator, server: str) -> str:
    """Return the ID of the serving member; "" if no member answers at this moment."""
    try:
        return str(_members(found, found.look(), server)["member"])
    except PubsubError:
        return ""


CHECK_CODES: Final = {"intact": 0, "damaged": 16, "broken": 17, "stale": 18, "newer": 19}
"""Exit code of `check` for each verdict."""


@app.command()
def check(
    old_form: OldDirectory = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="State directory of a stopped server.")
    ] = None,
    proxies: ProxyAddresses = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    key_file: KeyFile = None,
    patience: Patience = 2.0,
    as_json: AsJson = False,
) -> None:
    """Check a stopped server's store, topic by topic.

    The command changes nothing.

    With --proxy or --proxies-file it also asks the proxies whether the store is an older copy of itself.

    Exit codes: 0 the store is intact. 16 it is damaged, and a server still starts on it. 17 it is broken, and no
    server starts on it. 18 it is an older copy of itself. 19 a newer release wrote it.
    """
    from pubsub.server.offline.check import check as check_store
    from pubsub.server.offline.check import compare

    found = check_store(one_directory(directory, old_form))
    if proxies or proxies_file:
        said = {"proxies": proxies, "proxies_file": proxies_file, "proxy_keys": proxy_keys, "key_file": key_file}
        with cluster(read(ClientSettings, said, None), patience, patience) as known:
            compare(found, known.look().answered.values())
    if as_json:
        console.print_json(found.facts())
    else:
        for line in found.sentences():
            typer.echo(line)
    if code := CHECK_CODES[found.verdict]:
        raise typer.Exit(code)


@app.command()
def restored(
    directory: Store,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept a store that was restored from a backup.

    The store counts as the newest from then on, and its server serves again.

    A server refuses to serve topics from an older copy of its store. Run this only if the newer store is lost forever,
    and start the server afterwards. Messages that were put after the backup are lost; each subscriber gets one
    DataLoss error.
    """
    from pubsub.server.offline.restore import accept_copy

    confirm(
        f"Messages that were put to the topics in {directory} after this copy was made are lost, acknowledged or not."
        " Each subscriber gets one DataLoss error, even if nothing is lost for it, and continues."
        " Subscriptions and unsubscriptions made after the copy are forgotten.",
        yes,
    )
    done = accept_copy(directory)
    name = f"server {done.server}" if done.server else str(directory)
    console.report(
        as_json,
        {"server": done.server, "topics": list(done.topics), "on_their_way": list(done.frozen)},
        f"{name} continues with {len(done.topics):,} topics in new logs; start it now"
        + (f"; {len(done.frozen):,} topics complete their move to other servers" if done.frozen else ""),
    )
