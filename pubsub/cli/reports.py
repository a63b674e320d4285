"""Asks every proxy, and through the proxies every server, for its report, and combines the answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from pubsub.cli.locks import watched
from pubsub.cli.standbys import paired
from pubsub.client.requests import Answer, NoAnswer, Proxies
from pubsub.errors import KeyRefused, NotAllowed, Unavailable
from pubsub.monitoring import retained
from pubsub.monitoring.alarms import alarms
from pubsub.monitoring.held_back import held_back
from pubsub.monitoring.unknown import SilentServers, make_unknown
from pubsub.protocol.messages import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pubsub.config.settings import ClientSettings

SENDER: Final = "pubsub-status"

OLDEST: Final = "oldest_unacknowledged_seconds"

Question = tuple[str, str]
"""(address of a proxy, target: "-" for the proxy itself, or the ID of a server)."""


def gather(settings: ClientSettings, seconds: float) -> dict[str, Any]:
    """Return the state of a cluster.

    Args:
        settings: the proxies and our key.
        seconds: time limit for the proxies, and again for the servers.

    Raises:
        ConfigurationError: only one of the two sides, the proxies or we, has keys.
        Unavailable, KeyRefused, NotAllowed: no proxy answered.
    """
    with Proxies.of(settings) as proxies:
        reports = proxies.reports("status", SENDER, seconds)
        questions = _questions(reports)
        answers = proxies.read_each([(address, Report(SENDER, server)) for address, server in questions], seconds)
        servers: dict[str, Answer] = {}
        for (_, server), answer in zip(questions, answers, strict=True):
            if server not in servers or isinstance(answer, dict):
                servers[server] = answer
        if not all(isinstance(answer, dict) for answer in servers.values()):
            # A server left after the proxies' reports. Ask again: now they report since when, and its last figures.
            with contextlib.suppress(Unavailable, KeyRefused, NotAllowed):
                reports = proxies.reports("status", SENDER, seconds)
    return picture(reports, servers)


def picture(proxies: dict[str, Answer], servers: dict[str, Answer]) -> dict[str, Any]:
    """Combine the reports of all processes.

    Args:
        proxies: address -> its report, or the reason why there is none.
        servers: ID -> its report, or the reason why there is none.

    Returns:
        * `proxies`: address, answered, reason, report.
        * `servers`: id, alive, answered, reason, report.
        * `topics`: topic, owners, sole_owner, records, bytes, subscribers, backlog, held_by,
          oldest_unacknowledged_seconds, and the fields of `monitoring.retained` and of `monitoring.unknown`.
        * `moves`: server, and the fields of its report. `patterns`: subscriber, pattern, number and stamp.
        * `held_back`: topic, server and reason of `monitoring.held_back`; `held_back_left_out`: the number of others.
        * Old names of two fields, for one release: of a server `unheard_seconds` for `silent_seconds`, and of a topic
          `whole` for `sole_owner`.
        * `keys` of `locks.watched`, `standbys` of `standbys.paired`, `warnings`, and `alarms` of `monitoring.alarms`.
    """
    silent_servers = SilentServers(proxies, servers)
    alive: dict[str, bool] = {}
    warnings: list[str] = []
    for address, answer in proxies.items():
        if isinstance(answer, NoAnswer):
            warnings.append(f"proxy {address}: {answer}")
            continue
        warnings += [f"{answer['proxy']}: {text}" for text in answer["warnings"]]
        for server in answer["servers"]:
            alive[server["id"]] = alive.get(server["id"], False) or server["alive"]
    for server_id, facts in servers.items():
        if isinstance(facts, NoAnswer):
            warnings.append(f"server {server_id}: {facts}")
            continue
        if facts.get("full"):
            warnings.append(f"server {server_id}: its disk is full")
    topics = _topics(proxies, servers, silent_servers)
    keys, wrong = watched(proxies, servers)
    standbys, unpaired = paired(proxies, servers, silent_servers)
    unserved, left_out = held_back(servers)
    found: dict[str, Any] = {
        "proxies": [_part("address", address, answer) for address, answer in proxies.items()],
        "servers": list(_servers(servers, alive, silent_servers)),
        "topics": [topics[name] for name in sorted(topics)],
        "moves": list(_moves(servers)),
        "held_back": unserved,
        "held_back_left_out": left_out,
        "keys": keys,
        "standbys": standbys,
        "warnings": warnings + unpaired + wrong,
    }
    return found | {"patterns": _patterns(proxies), "alarms": alarms(found)}


def _topics(
    proxies: dict[str, Answer], servers: dict[str, Answer], silent_servers: SilentServers
) -> dict[str, dict[str, Any]]:
    """Return the topics by name, with the combined figures of all servers."""
    topics: dict[str, dict[str, Any]] = {}
    silent: dict[str, set[str]] = {}
    for answer in proxies.values():
        for entry in () if isinstance(answer, NoAnswer) else answer["topics"]:
            topic = topics.setdefault(entry["topic"], _blank(entry["topic"]))
            owners = {holder["server"] for holder in entry["holders"]}
            topic["owners"] = sorted(set(topic["owners"]) | owners)
            missing = {holder["server"] for holder in entry["holders"] if not silent_servers.knows(holder)}
            silent.setdefault(entry["topic"], set()).update(missing)
    for server_id, facts in servers.items():
        for name, held in ({} if isinstance(facts, NoAnswer) else facts["topics"]).items():
            _add_holding(topics.setdefault(name, _blank(name)), server_id, held)
    for name, topic in topics.items():
        _sum_up(topic)
        beyond = {server for server in topic["owners"] if _left_out(servers.get(server), name)}
        if missing := silent.get(name, set()) | beyond:
            make_unknown(topic, sorted(missing), silent_servers)
    return topics


def _servers(
    servers: dict[str, Answer], alive: dict[str, bool], silent_servers: SilentServers
) -> Iterator[dict[str, Any]]:
    """Return all servers by ID, also those that only a proxy knows. A server without a report has the time since it is
    silent, and its last figures.
    """
    for name in sorted(alive | dict.fromkeys(servers, True)):
        row = _part("id", name, servers.get(name, NoAnswer("no heartbeat"))) | {"alive": alive.get(name, False)}
        silence = silent_servers.seconds.get(name)
        yield row | {
            "silent_seconds": silence,
            "unheard_seconds": silence,
            "last_known": silent_servers.summary(name),
        }


def _left_out(report: Answer | None, topic: str) -> bool:
    """Return True if a server's report is too short for all its topics, and this topic is missing from it."""
    return (
        isinstance(report, dict) and topic not in report["topics"] and report.get("left_out", {}).get("topics", 0) > 0
    )


def _moves(servers: dict[str, Answer]) -> Iterator[dict[str, Any]]:
    """Return the topics in transfer, by server. Servers of earlier releases do not report them."""
    for name, facts in sorted(servers.items()):
        for move in () if isinstance(facts, NoAnswer) else facts.get("moves", ()):
            yield {"server": name, **move}


def _patterns(proxies: dict[str, Answer]) -> list[dict[str, Any]]:
    """Return the patterns of subscribers, of each the row with the highest number. Earlier releases report none."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for answer in proxies.values():
        for row in () if isinstance(answer, NoAnswer) else answer.get("patterns", ()):
            known = found.setdefault((row["subscriber"], row["pattern"]), row)
            if row["number"] > known["number"]:
                found[row["subscriber"], row["pattern"]] = row
    names = ("subscriber", "pattern", "number", "stamp")
    return [{name: found[key][name] for name in names} for key in sorted(found)]


def _questions(reports: dict[str, Answer]) -> list[Question]:
    """Ask each live server through every proxy that is connected to it: one of these proxies may have just died."""
    return [
        (address, server["id"])
        for address, answer in reports.items()
        if isinstance(answer, dict)
        for server in answer["servers"]
        if server["alive"]
    ]


def _blank(name: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"unknown_seconds": None, "last_known": None}
    figures = {"topic": name, "owners": [], "others": [], "records": 0, "bytes": 0, "subscribers": {}}
    return figures | nothing | retained.unknown()


def _add_holding(topic: dict[str, Any], server: str, held: dict[str, Any]) -> None:
    """Add one server's figures. If two servers hold a topic, records and waiting messages of both count."""
    topic["owners"] = sorted({*topic["owners"], server})
    topic["others"] = sorted({*topic["others"], *held["others"]})
    topic["records"] += held["records"]
    topic["bytes"] += held["bytes"]
    retained.add(topic, held)
    for name, facts in held["subscribers"].items():
        known = topic["subscribers"].setdefault(name, {"waiting": 0, "polling": False, OLDEST: None})
        known["waiting"] += facts["waiting"]
        known[OLDEST] = _older(known[OLDEST], facts.get(OLDEST))
        known["polling"] = known["polling"] or facts["polling"]


def _sum_up(topic: dict[str, Any]) -> None:
    topic["sole_owner"] = topic["whole"] = len(topic["owners"]) == 1 and not topic["others"]
    backlog = [(facts["waiting"], name) for name, facts in topic["subscribers"].items()]
    topic["backlog"], held_by = max(backlog, default=(0, None))
    topic["held_by"] = held_by if topic["backlog"] else None
    topic[OLDEST] = None
    for facts in topic["subscribers"].values():
        topic[OLDEST] = _older(topic[OLDEST], facts[OLDEST])


def _older(one: float | None, other: float | None) -> float | None:
    """Return the higher of two ages; None means unknown."""
    return other if one is None else one if other is None else max(one, other)


def _part(key: str, name: str, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, NoAnswer):
        return {key: name, "answered": False, "reason": answer.reason, "report": None}
    return {key: name, "answered": True, "reason": "", "report": answer}
