"""The standby section of `pubsub status`, and its alarms, for servers with two members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.client.requests import Answer
from pubsub.monitoring.unknown import SilentServers

SILENT: Final = "no heartbeat"

MAKING_SECONDS: Final = 5.0
"""After this time a register that is not made yet is waiting for a proxy."""

_WITHOUT: Final = {
    "alone": "the other member is not connected",
    "catching up": "the other member is catching up",
    "copying": "the other member is being copied: {copied_percent} %",
}


def paired(
    proxies: Mapping[str, Answer], servers: Mapping[str, Answer], silent_servers: SilentServers
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the servers with two members, and warnings about them.

    Args:
        proxies: address -> its report, or the reason why there is none.
        servers: ID -> its report, or the reason why there is none.
        silent_servers: the proxies' reports about servers that do not answer.

    Returns:
        A row for each server with a register, and the warnings as sentences. A row has:

        * `server`, `state` (as the primary reports it, see `server.standby.status`; "no heartbeat" if no member serves)
          and `since_seconds` (the age of that state).
        * `without_seconds`, `lag_loops`, `lag_bytes`, `held`, `copied_percent`: each null if it is not reported.
        * `primary`, `address`, `term`, `members`, `in_sync`, `addresses` (of members, by ID, as far as known).
        * `votes`: how many proxies have a vote, and the number of proxies.
    """
    rows: dict[str, dict[str, Any]] = {}
    for report in proxies.values():
        for register in report.get("registers", ()) if isinstance(report, dict) else ():
            row = rows.setdefault(register["server"], _blank(register["server"], len(proxies)))
            row["votes"][0] += register["votes"]
            if register["votes"] and register["term"] >= row["term"]:
                row |= {name: register[name] for name in ("primary", "address", "term", "members", "in_sync")}
                row["addresses"] |= {register["primary"]: register["address"]} if register["primary"] else {}
    for name, answer in servers.items():
        if isinstance(answer, dict) and (facts := answer.get("standby")) is not None:
            row = rows.setdefault(name, _blank(name, len(proxies)))
            row |= {key: facts[key] for key in row.keys() & facts.keys() - {"votes"}} | {"primary": facts["member"]}
    for name, row in rows.items():
        if row["state"] == SILENT:
            row["since_seconds"] = silent_servers.seconds.get(name)
            row["addresses"] = dict(silent_servers.standby(name).get("addresses") or {}) | row["addresses"]
    found = [rows[name] for name in sorted(rows)]
    answering = sum(isinstance(report, dict) for report in proxies.values())
    return found, [text for row in found for text in _warnings(row, answering)]


def _blank(server: str, proxies: int) -> dict[str, Any]:
    unknown = ("since_seconds", "without_seconds", "lag_loops", "lag_bytes", "held", "copied_percent")
    return {
        "server": server,
        "state": SILENT,
        **dict.fromkeys(unknown),
        "primary": "",
        "address": "",
        "term": 0,
        "members": [],
        "in_sync": [],
        "addresses": {},
        "votes": [0, proxies],
    }


def _warnings(row: dict[str, Any], answering: int) -> list[str]:
    server, state, (voting, proxies) = row["server"], row["state"], row["votes"]
    out = []
    if state == "making" and row["since_seconds"] > MAKING_SECONDS:
        out.append(f"server {server} has no standby yet: {voting} of {proxies} proxies have answered, start the others")
    elif state in _WITHOUT:
        since, why = clock(row["without_seconds"]), _WITHOUT[state].format(**row)
        out.append(f"server {server} has had no standby in sync for {since} ({why})")
    elif state == SILENT and row["in_sync"]:
        out.append(_to_start(row))
    if state != "making" and voting <= proxies // 2:
        few = f"{voting} of {proxies} proxies vote"
        out.append(f"server {server} cannot change its primary: only {few}; {_votes_help(row, answering)}")
    return out


def _to_start(row: dict[str, Any]) -> str:
    """Return which members of a silent server can be started, at which address, and by which command."""
    server, addresses = row["server"], row["addresses"]
    since = "" if row["since_seconds"] is None else f" for {clock(row['since_seconds'])}"
    which = [f"{member} at {addresses.get(member) or 'an address not known here'}" for member in row["in_sync"]]
    bind = next((addresses[member] for member in row["in_sync"] if addresses.get(member)), "tcp://HOST:PORT")
    return (
        f"server {server} is not connected{since}: on its host start member {' or '.join(which)}, which is in sync:"
        f" pubsub server start --id {server} --bind {bind} --proxies-file FILE --dir DIR; DIR/local contains the"
        " member's ID"
    )


def _votes_help(row: dict[str, Any], answering: int) -> str:
    """Return the action that gives a server's proxies their votes back.

    Args:
        answering: number of proxies that answer.
    """
    server, (voting, proxies) = row["server"], row["votes"]
    if answering <= proxies // 2 or (answering < proxies and voting == answering):
        return f"start the {proxies - answering} that do not answer"
    lost = "the others have lost their directories" if voting else "they have lost their directories"
    if row["state"] == SILENT:
        return f"{lost}: start both members, and if none becomes primary: pubsub server promote --id {server}"
    if row["state"] in _WITHOUT:
        return f"{lost}; they get their votes back when the other member is up: start it"
    return f"{lost}; they get their votes back from the two members within seconds, unless their disks are full"


def clock(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
