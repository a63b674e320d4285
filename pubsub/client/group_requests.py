"""Look at consumer groups, and act on them as an operator. Each function may be repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pubsub.client.errors import GroupInDoubt
from pubsub.client.group_facts import GroupFacts, GroupLetter, MemberFacts
from pubsub.client.requests import Proxies
from pubsub.client.topic_settings import OF_EARLIER_RELEASES
from pubsub.errors import NotKnown, NotNow, Refused
from pubsub.protocol.group_bodies import join_places
from pubsub.protocol.groups import Describe, Group
from pubsub.protocol.messages import Outcome, Report, Status
from pubsub.protocol.names import parse_position

UPGRADE: Final = "all proxies and servers need a release with consumer groups: upgrade them first"

HOLDERS_ASKED_MAX: Final = 3
"""Holders of one topic that are asked for a group; more than one is asked while a topic is split."""

NAMES_SHOWN: Final = 10

LETTERS_MAX: Final = 10_000
"""Members or dead letters of one group that are listed; a group has no more dead letters."""

Row = TypeVar("Row")


def list_groups(proxies: Proxies, sender: str, topic: str) -> list[GroupFacts]:
    """Return the groups of a topic in the order of their names.

    Raises:
        NotKnown: there is no such topic.
    """
    rows = _described(proxies, Describe(sender, topic))["groups"]
    return sorted(_read(topic, rows, partial(GroupFacts.of, topic)), key=lambda one: one.name)


def find_group(proxies: Proxies, sender: str, topic: str, name: str) -> GroupFacts:
    """Return one group of a topic.

    Raises:
        NotKnown: there is none; the text has the closest names.
    """
    found = list_groups(proxies, sender, topic)
    one = next((group for group in found if group.name == name), None)
    if one is None:
        hint = closest(name, [group.name for group in found], "pubsub client ID subscribe makes one")
        raise NotKnown(f"topic {topic} has no group {name}; {hint}")
    return one


def closest(name: str, names: Sequence[str], otherwise: str) -> str:
    """Return a hint for a name that does not exist.

    Args:
        names: those that exist.
        otherwise: the hint if there are none.
    """
    if not names:
        return f"it has none; {otherwise}"
    if near := get_close_matches(name, names, 3):
        return f"did you mean {' or '.join(near)}?"
    return f"there are: {', '.join(names[:NAMES_SHOWN])}" + (" …" if len(names) > NAMES_SHOWN else "")


def list_members(proxies: Proxies, sender: str, topic: str, name: str) -> list[MemberFacts]:
    """Return the members of a group in the order of their IDs.

    Raises:
        NotKnown: there is no such group.
    """
    rows = _pages(
        proxies, Describe(sender, topic, "members", name), "members", lambda row: f"{row['client']}/{row['store']}"
    )
    return _read(topic, rows, MemberFacts.of)


def find_member(members: Sequence[MemberFacts], topic: str, name: str, client: str, store: str = "") -> MemberFacts:
    """Return the member with a client ID. If several state directories have it, `store` chooses one.

    Raises:
        NotKnown: there is no such member; the text has the closest names.
        NotNow: there are several that hold messages, and `store` is "".
    """
    found = [one for one in members if one.client == client and store in {"", one.store}]
    if len(found) > 1:
        found = [one for one in found if one.claimed or one.offered] or found[-1:]
    if len(found) > 1:
        stores = ", ".join(f"{one.store} ({one.claimed:,} claimed)" for one in found)
        raise NotNow(
            f"several state directories of client {client} are members of group {name}: {stores}; name one by --store"
        )
    if not found:
        names = sorted({one.client for one in members})
        where = f"{client}/{store}" if store else client
        hint = f"its stores: {', '.join(one.store for one in members if one.client == client)}"
        hint = hint if client in names else closest(client, names, "pubsub client ID subscribe makes one")
        raise NotKnown(f"group {name} of {topic} has no member {where}; {hint}")
    return found[0]


def list_letters(proxies: Proxies, sender: str, topic: str, name: str, most: int = LETTERS_MAX) -> list[GroupLetter]:
    """Return the dead letters of a group in the order of their places, at most so many.

    Raises:
        NotKnown: there is no such group.
    """
    rows = _pages(proxies, Describe(sender, topic, "dead", name), "dead", lambda row: str(row["id"]), most)
    letters = _read(topic, rows, GroupLetter.of)
    return [replace(one, reason=unquote(one.reason)) for one in letters]


def release(
    proxies: Proxies, sender: str, topic: str, group: GroupFacts, member: MemberFacts, *, lost_disk: bool, force: bool
) -> int:
    """Give up all that a member holds: it goes to other members, marked as doubtful. Return the number of messages.

    Args:
        lost_disk: the member's state directory is lost for good, so the group forgets the member.
        force: also while the member is heard.

    Raises:
        NotNow: the member is heard and `force` is False, or it went on since it was looked at.
        NotKnown: the group or the member is gone.
    """
    request = Group(
        sender, topic, "release", group.name, group.number, member.client, member.store, member.number,
        lost_disk=int(lost_disk), force=int(force),
    )  # fmt: skip
    try:
        return _acted(proxies, request).records
    except Refused as error:
        if "heard" in error.reason:
            raise heard(group.name, member) from None
        raise


def heard(name: str, member: MemberFacts) -> NotNow:
    """Build the error for the release of a member that is heard."""
    return NotNow(
        f"member {member.client} of group {name} is heard, so nothing of it is released; stop its process, or give"
        " --force (force=True): what it is doing may then happen twice"
    )


def redrive(proxies: Proxies, sender: str, topic: str, group: GroupFacts, ids: Iterable[str], *, drop: bool) -> int:
    """Hand dead letters out again with no attempts counted, or drop them. Return their number.

    Args:
        ids: of the letters; none: all of them.
        drop: delete them.

    Raises:
        NotKnown: an ID is none of a dead letter, or the group is gone.
    """
    places = [place for one in ids if (place := parse_position(one)) is not None]
    action = "drop" if drop else "redrive"
    request = Group(sender, topic, action, group.name, group.number, places=join_places(places))
    return _acted(proxies, request).records


def check_letters(letters: Sequence[GroupLetter], topic: str, name: str, ids: Sequence[str]) -> None:
    """Check that each ID is that of a dead letter.

    Raises:
        NotKnown: one is not.
    """
    known = {one.id for one in letters if one.kind != "waiting"}
    for one in ids:
        if one not in known:
            hint = closest(one, sorted(known), f"pubsub group dead-letters {topic} {name} lists them")
            raise NotKnown(f"group {name} of {topic} has no dead letter {one[:80]}; {hint}")


def end(proxies: Proxies, sender: str, topic: str, group: GroupFacts, *, force: bool) -> None:
    """End a group for all its members. Its waiting messages and its dead letters are given up.

    Raises:
        GroupInDoubt: something is in doubt, and `force` is False.
    """
    request = Group(sender, topic, "end", group.name, group.number, force=int(force))
    try:
        _acted(proxies, request)
    except Refused as error:
        if "in doubt" in error.reason:
            raise in_doubt(proxies, sender, topic, group) from None
        raise


def in_doubt(proxies: Proxies, sender: str, topic: str, group: GroupFacts) -> GroupInDoubt:
    """Build the error for a group that cannot end yet."""
    silent = [one for one in list_members(proxies, sender, topic, group.name) if one.in_doubt]
    records = sum(one.in_doubt for one in silent) or group.in_doubt
    return GroupInDoubt(topic, group.name, records, tuple(sorted({one.client for one in silent})))


def resume(proxies: Proxies, sender: str, topic: str, group: GroupFacts, *, skip: bool) -> int:
    """Resume a group that a restore suspended. Return the number of messages that are handed out, or passed over.

    Args:
        skip: pass over all that was stored at the restore. False: hand it out, marked as doubtful.
    """
    request = Group(sender, topic, "resume", group.name, group.number, skip=int(skip))
    return _acted(proxies, request).records


def change(proxies: Proxies, sender: str, topic: str, group: GroupFacts, values: Mapping[str, Any]) -> GroupFacts:
    """Change values of a group, and return them.

    Args:
        values: `on_lost`, `lost_ms`, `attempts`, `mode` and `parts`, as in a request; those that are missing stay.

    Raises:
        NotNow: a shared group becomes keyed only while nothing of it is claimed, delayed or dead.
    """
    request = Group(sender, topic, "change", group.name, group.number, **values)
    try:
        _acted(proxies, request)
    except Refused as error:
        if "not empty" in error.reason:
            raise NotNow(
                f"group {group.name} of {topic} has claimed or delayed messages or dead letters, so its mode stays;"
                " stop its members, and redrive or drop the letters first"
            ) from None
        raise
    return find_group(proxies, sender, topic, group.name)


def act(
    proxies: Proxies, sender: str, topic: str, group: GroupFacts, action: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Carry an action out, and return its result by name.

    Args:
        action: release, redrive, drop, resume, end or change.
        values: its arguments, as the functions of those names have them.

    Raises:
        NotKnown, NotNow, GroupInDoubt: as those functions.
    """
    if action == "release":
        members = list_members(proxies, sender, topic, group.name)
        member = find_member(members, topic, group.name, values["client"], values["store"])
        lost, force = values["lost_disk"], values["force"]
        return {"messages": release(proxies, sender, topic, group, member, lost_disk=lost, force=force)}
    if action in {"redrive", "drop"}:
        if values["ids"]:
            check_letters(list_letters(proxies, sender, topic, group.name), topic, group.name, values["ids"])
        return {"messages": redrive(proxies, sender, topic, group, values["ids"], drop=action == "drop")}
    if action == "resume":
        return {"messages": resume(proxies, sender, topic, group, skip=values["skip"])}
    if action == "end":
        end(proxies, sender, topic, group, force=values["force"])
        return {}
    assert action == "change", action
    return {"values": str(change(proxies, sender, topic, group, values))}


def groups_everywhere(proxies: Proxies, sender: str) -> list[GroupFacts]:
    """Return the groups of all topics, in the order of topics and names.

    Raises:
        Unavailable, KeyRefused, NotAllowed: no proxy answered.
    """
    seconds = proxies.timeout_seconds
    reports = [one for one in proxies.reports("list", sender, seconds).values() if isinstance(one, dict)]
    alive = {server["id"] for report in reports for server in report["servers"] if server["alive"]}
    asked = [(address, Report(sender, server)) for address in proxies.addresses for server in sorted(alive)]
    topics: dict[str, dict[str, Any]] = {}
    for facts in proxies.read_each(asked, seconds):
        if isinstance(facts, dict):
            topics |= facts["topics"]
    known = {entry["topic"] for report in reports for entry in report["topics"]}
    found: list[GroupFacts] = []
    for topic in sorted(known | topics.keys()):
        rows = topics.get(topic, {}).get("groups")
        # A report may have no room for all topics, and an earlier release reports no groups.
        found += (
            list_groups(proxies, sender, topic) if rows is None else _read(topic, rows, partial(GroupFacts.of, topic))
        )
    return sorted(found, key=lambda one: (one.topic, one.name))


def _described(proxies: Proxies, request: Describe) -> dict[str, Any]:
    status = _asked(proxies, request)
    if status.outcome is Outcome.UNKNOWN:
        raise _unknown(request, status)
    try:
        found: Any = json.loads(bytes(status.body))
        found[request.what]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unreadable(request.topic) from None
    return dict(found)


def _pages(
    proxies: Proxies, request: Describe, what: str, mark: Callable[[Any], str], most: int = LETTERS_MAX
) -> list[Any]:
    rows: list[Any] = []
    while True:
        found = _described(proxies, request)
        rows += found[what]
        if not found.get("more") or not found[what] or len(rows) >= most:
            return rows[:most]
        request = replace(request, after=mark(found[what][-1]))


def _asked(proxies: Proxies, request: Describe | Group) -> Status:
    """Ask the holders of a topic for a group, one after the other, until one knows it."""
    for _ in range(HOLDERS_ASKED_MAX):
        try:
            status = proxies.ask(request)
        except Refused as error:
            if any(word in error.reason for word in OF_EARLIER_RELEASES):
                raise Refused("groups", request.topic, f"{error.reason}; {UPGRADE}") from None
            raise
        if status.outcome is not Outcome.UNKNOWN or not status.log or status.log == request.avoid:
            break
        request.avoid = status.log
    return status


def _acted(proxies: Proxies, request: Group) -> Status:
    """Send an operator's request and return its answer.

    Raises:
        NotKnown: the topic, the group or the member is not known.
        NotNow: the group was made again, or the member went on.
    """
    status = _asked(proxies, request)
    if status.outcome is Outcome.UNKNOWN:
        raise _unknown(request, status)
    if status.outcome is Outcome.SUPERSEDED:
        what = f"member {request.member}" if request.action == "release" else f"group {request.name}"
        raise NotNow(
            f"{what} went on since it was looked at, so nothing was changed; look again and repeat the command"
        )
    return status


def _unknown(request: Describe | Group, status: Status) -> NotKnown:
    reason = status.reason
    if "member" in reason and isinstance(request, Group):
        return NotKnown(f"group {request.name} of {request.topic} has no member {request.member} any more")
    if "group" in reason and request.name:
        return NotKnown(
            f"topic {request.topic} has no group {request.name}; pubsub group list {request.topic} lists its groups"
        )
    return NotKnown(f"topic {request.topic} does not exist; pubsub topic list lists the topics")


def _read(topic: str, rows: Iterable[Any], read: Callable[[Any], Row]) -> list[Row]:
    try:
        return [read(row) for row in rows]
    except (KeyError, TypeError):
        raise _unreadable(topic) from None


def _unreadable(topic: str) -> Refused:
    return Refused("groups", topic, f"the answer cannot be read; {UPGRADE}")
