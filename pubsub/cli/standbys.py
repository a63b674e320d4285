"""What `pubsub status` says of servers whose store has two members, and what of it is an alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.client.requests import Answer
from pubsub.monitoring.unknown import Unheard

NOT_HEARD: Final = "not heard"

MAKING_SECONDS: Final = 5.0
"""A register that is not made after so long waits for a proxy."""

_WITHOUT: Final = {
    "alone": "no other member is heard",
    "catching up": "the other member catches up",
    "copying": "the other member is copied: {copied_percent} %",
}


def paired(
    proxies: Mapping[str, Answer], servers: Mapping[str, Answer], unheard: Unheard
) -> tuple[list[dict[str, Any]], list[str]]:
    """The servers with two members, and what is wrong with them.

    Args:
        proxies: address -> its report, or why there is none.
        servers: ID -> its report, or why there is none.
        unheard: what the proxies say of the servers that have none.

    Returns:
        A row for each server whose store has a register: `server`, `state` (as the primary says, see
        `server.standby.status`; "not heard" where nobody serves), `since_seconds`, `without_seconds`, `lag_loops`,
        `lag_bytes`, `held`, `copied_percent` (each null where nobody says it), `primary`, `address`, `term`, `members`,
        `in_sync`, `addresses` (of members, by ID, as far as known) and `votes` (how many proxies have a vote, and of
        how many); and warnings, sentences for a person. Of a server that is not heard `since_seconds` says since when.
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
        if row["state"] == NOT_HEARD:
            row["since_seconds"] = unheard.seconds.get(name)
            row["addresses"] = dict(unheard.standby(name).get("addresses") or {}) | row["addresses"]
    found = [rows[name] for name in sorted(rows)]
    answering = sum(isinstance(report, dict) for report in proxies.values())
    return found, [text for row in found for text in _warnings(row, answering)]


def _blank(server: str, proxies: int) -> dict[str, Any]:
    unknown = ("since_seconds", "without_seconds", "lag_loops", "lag_bytes", "held", "copied_percent")
    return {
        "server": server,
        "state": NOT_HEARD,
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
        out.append(f"server {server} has no standby yet: every proxy must answer first, and {voting} of {proxies} have")
    elif state in _WITHOUT:
        since, why = clock(row["without_seconds"]), _WITHOUT[state].format(**row)
        out.append(f"server {server} has no standby in sync since {since} ({why})")
    elif state == NOT_HEARD and row["in_sync"]:
        out.append(_to_start(row))
    if state != "making" and voting <= proxies // 2:
        few = f"{voting} of {proxies} proxies vote"
        out.append(f"server {server} keeps its primary, whatever happens: {few}; {_votes_help(row, answering)}")
    return out


def _to_start(row: dict[str, Any]) -> str:
    """Which members can be started where a server is not heard, where they were, and by which command."""
    server, addresses = row["server"], row["addresses"]
    since = "" if row["since_seconds"] is None else f" since {clock(row['since_seconds'])}"
    which = [f"{member} at {addresses.get(member) or 'an address not known here'}" for member in row["in_sync"]]
    bind = next((addresses[member] for member in row["in_sync"] if addresses.get(member)), "tcp://HOST:PORT")
    return (
        f"server {server} is not heard{since}: start member {' or '.join(which)}, which is in sync, on its host:"
        f" pubsub server start --id {server} --bind {bind} --proxies-file FILE --dir DIR, where DIR/local names the"
        " member"
    )


def _votes_help(row: dict[str, Any], answering: int) -> str:
    """What gives a server's proxies their votes back.

    Args:
        answering: proxies that answer.
    """
    server, (voting, proxies) = row["server"], row["votes"]
    if answering <= proxies // 2 or (answering < proxies and voting == answering):
        return f"start the {proxies - answering} that do not answer"
    lost = "the others have lost their directories" if voting else "they have lost their directories"
    if row["state"] == NOT_HEARD:
        return f"{lost}: start both members, and where none becomes primary: pubsub server promote --id {server}"
    if row["state"] in _WITHOUT:
        return f"{lost}, and get their votes back when the other member is up: start it"
    return f"{lost}, and get their votes back from the two members within seconds; if not, their disks are full"


def clock(seconds: float) -> str:
    """A time that has passed, as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
