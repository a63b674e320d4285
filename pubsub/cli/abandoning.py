"""`pubsub topic abandon`: gives up a lost server's part of one topic, or of each of its topics."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from pubsub.cli.operating import Holder, Operator, View
from pubsub.client.requests import reason_of
from pubsub.errors import NotKnown, NotNow, Unavailable
from pubsub.protocol.messages import Outcome, Status
from pubsub.protocol.names import may_be_one_server, parse_endpoint


class Part(NamedTuple):
    """A lost server's part of one topic.

    Attributes:
        server: its ID.
        lost: the logs to give up.
        waiting: servers that froze the topic for a transfer to the lost one.
    """

    topic: str
    server: str
    lost: frozenset[Holder]
    waiting: frozenset[str]

    @property
    def logs(self) -> list[str]:
        """IDs of the logs, as far as they are known."""
        return sorted(holder.log for holder in self.lost if holder.log)


def find_part(found: Operator, name: str, server: str) -> Part:
    """Return a lost server's part of a topic.

    Raises:
        NotNow: the server is connected, and its part may not be lost.
        NotKnown: no process knows of such a part.
        Unavailable, ServerSilent: a proxy or server does not answer.
    """
    view = found.look(name)
    held = found.server_report(server, view, name)["topics"] if view.proxies_of(server) else {}
    check_lost(view, name, server, held, found.patience)
    reports = {one: found.server_report(one, view, name)["topics"].get(name, {}) for one in view.live()}
    part = Part(name, server, frozenset(_lost(view, name, server, reports)), _waiting(view, server, reports))
    if not part.lost and not part.waiting:
        silent_servers = any(
            not facts.get("announced", facts.get("heard", True)) for facts in view.away(server).values()
        )
        hint = f"; if its disk is lost: pubsub server forget {server}" if silent_servers else ""
        raise NotKnown(f"no process knows of topic {name} at server {server}, so there is nothing to give up{hint}")
    return part


def find_topics(found: Operator, server: str) -> list[str]:
    """Return the topics with a part of a lost server that is not given up yet, as far as reports name them.

    Raises:
        NotNow: the server is connected.
        Unavailable, ServerSilent: a proxy or server does not answer.
    """
    view = found.look()
    check_answered(view, f"each topic of {server}", found.patience)
    if view.proxies_of(server):
        raise NotNow(f"server {server} is connected to a proxy; stop it first if its store is lost")
    names = {
        row["topic"]
        for report in view.answered.values()
        for row in report["topics"]
        if any(holder["server"] == server for holder in row["holders"])
    }
    names |= {row["topic"] for report in view.answered.values() for row in report["doubts"] if server in row["servers"]}
    for one in view.live():
        for name, facts in found.server_report(one, view)["topics"].items():
            if server in facts.get("rivals", {}).values() or _waiting(view, server, {one: facts}):
                names.add(name)
    return sorted(names)


def give_up(found: Operator, part: Part) -> None:
    """Make every proxy forget a part, and wait until that is visible. It can be repeated.

    Raises:
        NotNow: the server is connected to a proxy again.
        Unavailable: a proxy did not store it, or it is not visible in time.
    """
    view = found.look(part.topic)
    tell = partial(_tell_all, found, view, part)
    tell()
    found.wait(lambda: _is_done(found, part), "abandon", part.topic, again=tell)


def _tell_all(found: Operator, view: View, part: Part) -> None:
    """Make every proxy forget the holder, and tell the servers that it is given up."""
    for holder in part.lost:
        _tell(found, part.topic, holder, view.address_of_store(holder.store))
    for address in (view.addresses(part.server) or {""}) if part.waiting else ():
        _tell(found, part.topic, Holder(part.server, "", ""), address)


def _waiting(view: View, server: str, reports: dict[str, dict[str, Any]]) -> frozenset[str]:
    """Return the servers that froze the topic for a transfer to this one: the stored address has its ID, or is its
    address.
    """
    addresses = view.addresses(server)

    def is_for(frozen: str) -> bool:
        named = parse_endpoint(frozen)[0]
        return named == server if named else any(may_be_one_server(frozen, address) for address in addresses)

    return frozenset(one for one, facts in reports.items() if facts.get("frozen") and is_for(facts["frozen"]))


def _is_done(found: Operator, part: Part) -> bool:
    """Return True if every proxy has forgotten the holder and no server waits for it."""
    view = found.look(part.topic)
    if not _is_given_up(view, part.topic, part.server, part.lost):
        return False
    heard = [one for one in part.waiting if view.proxies_of(one)]
    reports = {one: found.server_report(one, view, part.topic)["topics"].get(part.topic, {}) for one in heard}
    return not _waiting(view, part.server, reports)


def check_answered(view: View, subject: str, patience: float) -> None:
    """Raise Unavailable unless every proxy answered."""
    if view.silent:
        silent = "; ".join(f"{address}: {reason}" for address, reason in view.silent.items())
        raise Unavailable("abandon", subject, patience, f"every proxy must answer, start or reach this one: {silent}")


def check_lost(view: View, name: str, server: str, held: dict[str, Any], patience: float) -> None:
    """Check that a server's part of a topic may be given up.

    Args:
        held: topics in the report of the connected server with this ID.

    Raises:
        Unavailable: a proxy did not answer.
        NotNow: a server with this ID is connected, and holds the topic or may hold it.
    """
    check_answered(view, name, patience)
    if not view.proxies_of(server):
        return
    if name in held:
        raise NotNow(f"server {server} is connected to a proxy and holds {name}; stop it first if its part is lost")
    holders = [holder for holder in view.holders(name) if holder.server == server]
    away = view.away(server)
    if any(holder.store in away for holder in holders):
        raise NotNow(
            f"server {server} runs on another store, which does not hold {name}; stop it, repeat this command, and"
            " start it again"
        )
    if holders:
        raise NotNow(
            f"server {server} is connected to a proxy, and a proxy still names it as a holder of {name}; repeat this"
            " command, or stop the server first if its part is lost"
        )


def _lost(view: View, name: str, server: str, reports: dict[str, Any]) -> set[Holder]:
    """Return the logs to give up: those that proxies know, and those that only other servers know."""
    known = {holder for holder in view.holders(name) if holder.server == server} | view.given_up(name, server)
    told = {log for facts in reports.values() for log, other in facts.get("rivals", {}).items() if other == server}
    lost = known | {Holder(server, "", log) for log in told - {holder.log for holder in known}}
    return lost or ({Holder(server, "", "")} if view.doubted(name, server) else set())


def _tell(found: Operator, name: str, holder: Holder, address: str) -> None:
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


def _is_given_up(view: View, name: str, server: str, lost: Iterable[Holder]) -> bool:
    dead = {holder.log for holder in lost} - {""}
    return all(
        dead <= {row["log"] for row in report["abandoned"] if row["topic"] == name}
        and not view.doubted(name, server)
        and not any(h["server"] == server for row in report["topics"] if row["topic"] == name for h in row["holders"])
        for report in view.answered.values()
    )
