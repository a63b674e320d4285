"""What `pubsub status` says of servers whose store has two members, and what of it is an alarm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pubsub.cli.reaching import Answer

MAKING_SECONDS: Final = 5.0
"""A register that is not made after so long waits for a proxy."""

_WITHOUT: Final = {
    "alone": "no other member is heard",
    "catching up": "the other member catches up",
    "copying": "the other member is copied: {copied_percent} %",
}


def paired(proxies: Mapping[str, Answer], servers: Mapping[str, Answer]) -> tuple[list[dict[str, Any]], list[str]]:
    """The servers with two members, and what is wrong with them.

    Args:
        proxies: address -> its report, or why there is none.
        servers: ID -> its report, or why there is none.

    Returns:
        A row for each server whose store has a register: `server`, `state` (as the primary says, see
        `server.standby.standing`; "not heard" where nobody serves), `since_seconds`, `without_seconds`, `lag_loops`,
        `lag_bytes`, `held`, `copied_percent` (each null where nobody says it), `primary`, `address`, `term`, `members`,
        `in_sync` and `votes` (how many proxies have a vote, and of how many); and warnings, sentences for a person.
    """
    rows: dict[str, dict[str, Any]] = {}
    for report in proxies.values():
        for register in report.get("registers", ()) if isinstance(report, dict) else ():
            row = rows.setdefault(register["server"], _blank(register["server"], len(proxies)))
            row["votes"][0] += register["votes"]
            if register["votes"] and register["term"] >= row["term"]:
                row |= {name: register[name] for name in ("primary", "address", "term", "members", "in_sync")}
    for name, answer in servers.items():
        if isinstance(answer, dict) and (facts := answer.get("standby")) is not None:
            row = rows.setdefault(name, _blank(name, len(proxies)))
            row |= {key: facts[key] for key in row.keys() & facts.keys() - {"votes"}} | {"primary": facts["member"]}
    found = [rows[name] for name in sorted(rows)]
    answering = sum(isinstance(report, dict) for report in proxies.values())
    return found, [text for row in found for text in _warnings(row, answering)]


def _blank(server: str, proxies: int) -> dict[str, Any]:
    unknown = ("since_seconds", "without_seconds", "lag_loops", "lag_bytes", "held", "copied_percent")
    return {
        "server": server,
        "state": "not heard",
        **dict.fromkeys(unknown),
        "primary": "",
        "address": "",
        "term": 0,
        "members": [],
        "in_sync": [],
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
    elif state == "not heard" and row["in_sync"]:
        out.append(f"server {server} is not heard: start member {' or '.join(row['in_sync'])}, which is in sync")
    if state != "making" and voting <= proxies // 2:
        few = f"{voting} of {proxies} proxies vote"
        out.append(f"server {server} keeps its primary, whatever happens: {few}; {_votes_help(row, answering)}")
    return out


def _votes_help(row: dict[str, Any], answering: int) -> str:
    """What gives a server's proxies their votes back.

    Args:
        answering: proxies that answer.
    """
    server, (voting, proxies) = row["server"], row["votes"]
    if answering <= proxies // 2 or (answering < proxies and voting == answering):
        return f"start the {proxies - answering} that do not answer"
    lost = "the others have lost their directories" if voting else "they have lost their directories"
    if row["state"] == "not heard":
        return f"{lost}: start both members, and where none becomes primary: pubsub server promote --id {server}"
    if row["state"] in _WITHOUT:
        return f"{lost}, and get their votes back when the other member is up: start it"
    return f"{lost}, and get their votes back from the two members within seconds; if not, their disks are full"


def clock(seconds: float) -> str:
    """A time that has passed, as hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
