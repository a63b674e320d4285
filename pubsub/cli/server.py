"""`pubsub server …`: the server's own commands, and those that need the whole cluster."""

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
    stop: Annotated[bool, typer.Option("--stop", help="Let it take topics again; what was moved stays.")] = False,
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a server no new topics, and move those it holds to the servers that hold the fewest, one after another.

    It stays so over restarts until --stop. --wait is for each topic. An interrupted drain goes on when it is repeated.
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
            raise NotNow(f"no other server is heard that takes topics: {server} keeps its {len(held):,} topics")
        confirm(
            f"{server} is given no topic any more, until pubsub server drain {server} --stop. Its {len(held):,} topics"
            f" move to {', '.join(others) or 'nobody'}; puts and gets on each wait while it is on its way.",
            yes,
        )
        moved = drain_server(found, view, server, quiet=as_json)
    facts = {"server": server, "draining": True, "moved": moved}
    console.report(as_json, facts, f"{server} is drained: {len(moved):,} topics were moved")


def stop_draining(found: Operator, view: View, server: str) -> None:
    """Let a server take topics again, and wait until the proxies know.

    Raises:
        NotHeard, Unavailable: why it does not.
    """
    _tell(found, view, server, stop=1)
    found.wait(lambda: not found.look().draining(server), "drain --stop", server)


def drain_server(found: Operator, view: View, server: str, *, quiet: bool) -> list[dict[str, Any]]:
    """Give a server no new topics, and move those it holds; what was moved. `quiet`: say nothing meanwhile.

    Raises:
        NotNow, NotHeard, Unavailable: why not all were.
    """
    _tell(found, view, server, stop=0)
    found.wait(lambda: _all_drain(found.look(), server), "drain", server)
    return _move_all(found, server, quiet=quiet)


def _all_drain(view: View, server: str) -> bool:
    """Whether every proxy that hears the server knows that it is draining."""
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
    """Move what the server holds until it holds nothing; what was moved."""
    moved: list[dict[str, Any]] = []
    deadline = time.monotonic() + found.seconds
    while True:
        view = found.look()
        held = found.server_report(server, view)["topics"]
        # A contested topic is merged first, without our doing; one that was moved and is still listed is being deleted.
        ready = [name for name, facts in sorted(held.items()) if not facts["others"]]
        if not held:
            return moved
        for index, name in enumerate(ready):
            receivers = {name: count for name, count in found.look().receivers().items() if name != server}
            if not receivers:
                raise NotNow(f"no other server is heard that takes topics: {server} keeps {len(held):,} topics")
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
            raise Unavailable("drain", server, found.seconds, f"contested or on their way elsewhere: {stuck}")
        time.sleep(0 if ready else 0.2)


@app.command()
@takes_settings(ClientSettings, REACHING)
def forget(
    loaded: Loaded[ClientSettings],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="ID of the server, or of its store.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say that a server's store is gone for good, so that nobody waits to hear what it holds.

    It is needed where proxies have lost their directories and pubsub status says that they wait for the server. All
    proxies must answer. A store that is heard, or that a proxy knows topics of, is not forgotten: pubsub topic abandon
    gives those up. Another store that is heard under the same ID is left alone.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        if view.silent:
            silent = "; ".join(f"{address}: {reason}" for address, reason in view.silent.items())
            raise Unavailable("forget", server, patience, f"every proxy must answer, and one did not: {silent}")
        stores = view.away(server)
        if not stores:
            if view.hearing(server):
                raise NotNow(f"server {server} is heard: it is not forgotten")
            raise NotKnown(f"server {server} is not known to any proxy; pubsub status lists them")
        held = sum(facts["topics"] for facts in stores.values())
        if held:
            raise NotNow(f"server {server} holds {held:,} topics, as proxies know: pubsub topic abandon gives them up")
        confirm(
            f"Nobody waits for server {server} any more (store {', '.join(sorted(stores))}). Topics that only it holds"
            " are begun anew elsewhere: what waits there for its subscribers is given up.",
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
            raise NotNow(f"server {server} is not forgotten, {proxy} says: {answer.reason.replace('_', ' ')}")
        if not isinstance(answer, Status) or answer.outcome not in {Outcome.SUCCESS, Outcome.UNKNOWN}:
            failed.append(f"{proxy}: {reason_of(answer)}")
    if failed:
        raise Unavailable(
            "forget", server, found.patience, f"not durable at every proxy, repeat it: {'; '.join(failed)}"
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
    """Have the standby of a server take its place, in order: for upgrades, one member after the other.

    Both stay in sync; requests wait for a moment.
    """
    check_id("server ID", server)
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        before = _members(found, view, server)["member"]
        answer = found.operate(server, view, "switch")
        if answer.outcome is Outcome.REFUSED:
            raise NotNow(f"server {server} has no standby in sync; pubsub status says why")
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
    member: Annotated[str, typer.Option("--member", metavar="MEMBER", help="ID of the member that is gone for good.")],
    patience: Patience = 2.0,
    wait: Wait = 60.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a member that is gone for good from a server, so that another one may take its place.

    A member in sync is refused. The directory of one that was removed is of no use then.
    """
    check_id("server ID", server)
    if not is_hex(member):
        raise InvalidName("member ID", member, "16 lower-case hex digits, as pubsub status names them")
    with cluster(loaded, patience, wait) as found:
        view = found.look()
        facts = _members(found, view, server)
        if member == facts["member"]:
            raise NotNow(f"member {member} is the primary of server {server}: pubsub server switch {server} first")
        if member in facts["in_sync"]:
            # The primary would keep the request, and remove the member when it is dropped next, at an upgrade say.
            raise NotNow(f"member {member} is in sync: it is not gone, or was heard a moment ago; stop it first")
        if member in facts["members"]:
            confirm(f"Member {member} of server {server} is forgotten, and what is on its disk with it.", yes)
            if found.operate(server, view, "remove", member=member).outcome is Outcome.REFUSED:
                raise NotNow(f"server {server} does not remove member {member} now")
            found.wait(
                lambda: member not in _members(found, found.look(), server)["members"], "remove --member", server
            )
    console.report(as_json, {"server": server, "member": member}, f"{member} is no member of {server}")


@app.command()
@takes_settings(ServerSettings)
def promote(
    loaded: Loaded[ServerSettings],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="What this member does not have may be lost: must be said.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a stopped member the only one of its server, where those in sync are gone for good: the last resort.

    All settings are those it is started with; start it then. Refused while any proxy hears a primary of the server, and
    where this member is in sync, which takes over by itself. What was answered and did not come here is lost:
    subscribers are told once (DataLoss), publishers' unfinished puts are sent anew.
    """
    from pubsub.server.promote import promote as promote_member

    server, directory = loaded.settings.id, loaded.settings.directory
    if not accept_loss:
        raise typer.BadParameter("what this member does not have may be lost for good: say --accept-loss")

    def agree(in_sync: tuple[str, ...]) -> None:
        had = f"In sync are {', '.join(in_sync)}, as proxies know." if in_sync else "No proxy knows who is in sync."
        confirm(
            f"{had} What server {server} has answered and the member in {directory} does not have is given up for good."
            " Subscribers of all its topics are told once that something is lost (DataLoss), also where nothing was."
            " If another member comes back, what only it has is replaced.",
            yes,
            word=server,
        )

    done = promote_member(loaded.settings, agree)
    topics = done.restored.topics
    console.report(
        as_json,
        {"server": server, "member": done.member, "term": done.term, "topics": list(topics)},
        f"{done.member} is the only member of {server}, and goes on with {len(topics):,} topics in new logs: start it",
    )


def _members(found: Operator, view: View, server: str) -> dict[str, Any]:
    """What a server says of its members.

    Raises:
        NotKnown: it has no standby.
    """
    facts: dict[str, Any] | None = found.server_report(server, view).get("standby")
    if facts is None:
        raise NotKnown(f"server {server} has no standby, and never had one")
    return facts


def _primary_now(found: Operator, server: str) -> str:
    """The ID of the member that serves; "" where nobody answers for the server at this moment."""
    try:
        return str(_members(found, found.look(), server)["member"])
    except PubsubError:
        return ""


CHECK_CODES: Final = {"intact": 0, "damaged": 16, "broken": 17, "stale": 18, "newer": 19}
"""Exit code of `check` by its verdict."""


@app.command()
def check(
    old_form: OldDirectory = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="The directory of a server that does not run.")
    ] = None,
    proxies: ProxyAddresses = None,
    proxies_file: ProxiesFile = None,
    proxy_keys: ProxyKeys = None,
    key_file: KeyFile = None,
    patience: Patience = 2.0,
    as_json: AsJson = False,
) -> None:
    """Say what is intact of a stopped server's store and what is damaged, topic by topic; nothing is changed.

    With --proxy or --proxies-file it is also seen whether a proxy remembers a later state of it, as of an older copy.
    Exit codes: 0 intact, 16 damaged, 17 broken, 18 an older copy, 19 of a newer release.
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
    """Say that a store which was put back from a backup is all there is, so that its server serves again.

    Start the server then. Do this only where the newer store is gone for good.
    """
    from pubsub.server.offline.restore import accept_copy

    confirm(
        f"What was put to the topics in {directory} after this copy was made is given up for good, acknowledged or not."
        " Their subscribers are told once that something is lost (DataLoss), also where nothing was, and go on;"
        " subscriptions and unsubscriptions made after the copy are forgotten here.",
        yes,
    )
    done = accept_copy(directory)
    name = f"server {done.server}" if done.server else str(directory)
    console.report(
        as_json,
        {"server": done.server, "topics": list(done.topics), "on_their_way": list(done.frozen)},
        f"{name} goes on with {len(done.topics):,} topics in new logs: start it"
        + (f"; {len(done.frozen):,} are on their way to other servers, and go there" if done.frozen else ""),
    )
