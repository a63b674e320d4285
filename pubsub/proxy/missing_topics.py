"""Requests for a topic that does not exist, where only an operator creates topics (`topics_auto = false`).

A proxy refuses such a request only if it knows that no server has the topic. It knows that if every known store is
connected and alive, and has announced all its topics. Otherwise the topic may exist, and the request waits.

A refusal names a topic that differs by one edit: a letter too many, missing or wrong, or two letters exchanged. Each
such name is looked up, so the search does not depend on the number of topics.

The rules are docs/explanation/topics.md, U2 and U3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from shlex import quote
from typing import Final

from pubsub.protocol import Configure, Message
from pubsub.proxy.routing_table import RoutingTable

LOOKED_UP_MAX: Final = 40
"""Longest name for which a similar one is looked for: about 130 look-ups for each letter."""

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:"


def may_create(topic: str, request: Message) -> bool:
    """Return whether a request creates its topic in spite of `topics_auto = false`."""
    return topic.startswith("$") or (isinstance(request, Configure) and bool(request.create))


def where_unseen(table: RoutingTable, topic: str, now: float) -> str:
    """Return the reason why a server may hold a topic that this proxy does not know; "" if none can.

    Args:
        now: the monotonic clock, in seconds.
    """
    for server in table.servers.values():
        if not server.alive(now):
            return f"server_{server.id or server.store}_may_hold_the_topic_and_sends_no_heartbeats"
        if not server.complete or server.overflow or table.assignments.may_be_making(server, topic):
            return f"server_{server.id}_may_hold_the_topic_and_has_not_announced_all_its_topics"
    return ""


def refusal(topic: str, exists: Callable[[str], bool], most: int) -> str:
    """Return the sentence of a refusal.

    Args:
        exists: returns whether a name is that of a topic which the client may know.
        most: longest sentence, in characters.
    """
    near = next(filter(exists, _one_edit_away(topic)), "") if len(topic) <= LOOKED_UP_MAX else ""
    said = f"topic '{topic}' does not exist" + (f"; did you mean '{near}'?" if near else ";")
    full = f"{said} create it with `pubsub topic create {quote(topic)}`"
    return full if len(full) <= most else said.rstrip(";")


def _one_edit_away(name: str) -> Iterator[str]:
    """Yield the names at one edit, the likeliest mistakes first."""
    cuts = [(name[:place], name[place:]) for place in range(len(name) + 1)]
    yield from (left + right[1] + right[0] + right[2:] for left, right in cuts if len(right) > 1)
    yield from (left + right[1:] for left, right in cuts if right and len(name) > 1)
    yield from (left + letter + right for left, right in cuts for letter in _LETTERS)
    yield from (left + letter + right[1:] for left, right in cuts if right for letter in _LETTERS)
