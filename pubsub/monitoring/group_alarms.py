"""Alarms of consumer groups: what is in doubt, dead letters, a full or suspended group, and groups without a member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pubsub.base.plurals import counted, verb

DOUBT_SECONDS_MAX: Final = 60.0
"""Silence of a member with claims above which there is an alarm."""

HELD_SECONDS_MAX: Final = 600.0
"""Time for which a member holds claims without a pause, above which there is an alarm."""

GROUPS_MAX: Final = 5
"""Groups named in alarms of one kind; one more sentence counts the others."""

Facts = Mapping[str, Any]


def group_alarms(servers: list[Facts]) -> Iterator[str]:
    """Yield one sentence for each alarm about a consumer group.

    Args:
        servers: of the cluster's report, each with its own report, or None.
    """
    kinds: dict[str, list[str]] = {}
    for server in servers:
        for topic, held in ((server["report"] or {}).get("topics") or {}).items():
            for group in held.get("groups", ()):
                for kind, text in _of(topic, group):
                    kinds.setdefault(kind, []).append(text)
    for kind, texts in kinds.items():
        yield from texts[:GROUPS_MAX]
        if len(texts) > GROUPS_MAX:
            more, has = len(texts) - GROUPS_MAX, kind.replace("have", "has").replace("are ", "is ")
            yield f"{counted(more, 'more group')} {verb(more, has, kind)}"


def _of(topic: str, group: Facts) -> Iterator[tuple[str, str]]:
    name = group["name"]
    what = f"group {name} of {topic}"
    silent = group["in_doubt_seconds"]
    if silent is not None and silent > DOUBT_SECONDS_MAX:
        who = ", ".join(client for client, _ in group["in_doubt_names"][:3])
        text = (
            f"{what}: {counted(group['in_doubt'], 'message')} in doubt for {int(silent)} s; start {who} again,"
            f" or run pubsub group release {topic} {name} --member CLIENT"
        )
        yield "have messages in doubt", text
    if group["full"]:
        remedy = f"run pubsub group redrive {topic} {name}, with --drop to delete them"
        yield "are full of dead letters", f"{what}: it is full of dead letters and claims nothing; {remedy}"
    elif group["dead_letters"]:
        text = (
            f"{what}: it has {counted(group['dead_letters'], 'dead letter')}; run pubsub group redrive {topic} {name}"
        )
        yield "have dead letters", text
    if group["suspended"]:
        text = f"{what}: it is suspended since the store was restored; run pubsub group resume {topic} {name}"
        yield "are suspended", text
    held = group["held_seconds_max"]
    if held is not None and held > HELD_SECONDS_MAX:
        text = f"{what}: a member holds messages for {int(held)} s without a pause; look at its handler"
        yield "have a member that holds messages for long", text
    if group["waiting"] and not group["members_heard"] and not group["suspended"]:
        text = f"{what}: {counted(group['waiting'], 'message')} waiting and no member is heard; start one"
        yield "have no member", text
