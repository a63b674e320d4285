"""Requests of operators: move a topic, end a subscription, change a topic's settings, drain a server.

`topic_objects` has those that create and purge topics.

The caller of the gateway passes the functions (`pubsub.cli` composes them); they are the same as those of the commands.
They take time, so each runs on a thread, OPERATIONS_MAX at once, and as many requests that look at settings.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from starlette.responses import Response

from pubsub.client.topic_settings import OtherSettings
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.problems import Problem
from pubsub.gateway.sessions import Needs
from pubsub.protocol import check_id, check_topic
from pubsub.protocol.topic_settings import SETTINGS
from pubsub.web.tokens import User

_TAG: Final = re.compile(r'"([0-9a-f]{16}|)"')

OPERATIONS_MAX: Final = 4


class Operations(Protocol):
    """Operations on a cluster. Each call returns when it is complete, and raises as the command of the same name."""

    def move(self, topic: str, to: str) -> dict[str, Any]:
        """Move a topic to another server: `topic`, `from`, `to`, `moved`."""

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        """End a client's subscription to a topic, or its pattern: `topic`, `client`, `given_up`."""

    def settings(self, user: str, topic: str) -> dict[str, Any]:
        """Return a topic's settings: `topic`, `keep`, `drop`, `version`, `conflict`."""

    def groups(self, user: str, topic: str) -> list[dict[str, Any]]:
        """Return the consumer groups of a topic: the fields of a `GroupFacts` each."""

    def group(self, user: str, topic: str, name: str) -> dict[str, Any]:
        """Return a group, with `members` and `letters`: the fields of its `MemberFacts` and `GroupLetter`."""

    def act_on_group(self, action: str, topic: str, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Release, redrive, drop, resume, change or end a group: `topic`, `group`, and for most actions `messages`."""

    def configure(self, topic: str, values: Mapping[str, str | None], base: str | None) -> dict[str, Any]:
        """Change a topic's settings of the version `base` (None: the present ones), and return those in force."""

    def create(self, topic: str, values: Mapping[str, str | None]) -> dict[str, Any]:
        """Create a topic: the fields of `settings`, and `new`, False if it exists with these settings."""

    def purge(self, topic: str, *, unread: bool) -> dict[str, Any]:
        """Delete the stored messages of a topic: `topic`, `records`, `unread`."""

    def delete(self, topic: str, *, force: bool) -> dict[str, Any]:
        """Delete a topic: `topic`, `records`, `subscribers`."""

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        """Move a server's topics away and assign no new ones to it, or undo this: `server`, `draining`."""


class Operating:
    """Handlers for operators.

    Args:
        operations: carries out the requests.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._running: Counter[str] = Counter()

    async def _run(self, exchange: Exchange, function: Callable[[], dict[str, Any]]) -> Response:
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
        return answer(await self.facts(exchange, function, lambda user: user.operate))

    async def facts(
        self, exchange: Exchange, function: Callable[[], dict[str, Any]], needs: Needs, kind: str = "operations"
    ) -> dict[str, Any]:
        """Run a function on a thread and return its result.

        Args:
            needs: the right that the user must still have.
            kind: OPERATIONS_MAX of each kind run at once.
        """
        if self._running[kind] >= OPERATIONS_MAX:
            raise Problem("busy", f"{OPERATIONS_MAX} {kind} are running, which is the limit; try again.")
        exchange.check(needs)
        self._running[kind] += 1
        try:
            return await asyncio.to_thread(function)
        finally:
            self._running[kind] -= 1

    async def move(self, exchange: Exchange) -> Response:
        topic, facts = check_topic(exchange.topic), await exchange.json()
        if not isinstance(facts, dict) or facts.keys() != {"to"} or not isinstance(facts["to"], str):
            raise Problem("bad-request", 'The body is not valid; send {"to": "SERVER"}.')
        to = check_id("server ID", facts["to"])
        return await self._run(exchange, lambda: self._operations.move(topic, to))

    async def unsubscribe(self, exchange: Exchange) -> Response:
        topic, client = check_topic(exchange.topic), check_id("client ID", exchange.names["client"])
        return await self._run(exchange, lambda: self._operations.unsubscribe(topic, client))

    async def settings(self, exchange: Exchange) -> Response:
        """Return a topic's settings, with their version as ETag."""
        topic, user = check_topic(exchange.topic), exchange.user

        def may(user: User) -> bool:
            return user.operate or user.may_get(topic)

        if not may(user):
            raise Problem("not-allowed", f"This token may not receive {topic}; it needs the right get or operate.")
        # Users who look keep no operator from an operation.
        facts = await self.facts(exchange, lambda: self._operations.settings(user.name, topic), may, "looks")
        return answer(facts, headers=_tag(facts["version"]))

    async def configure(self, exchange: Exchange) -> Response:
        """Change a topic's settings; with If-Match only those of that version."""
        topic, wanted, base = check_topic(exchange.topic), await exchange.json(), _base(exchange)
        if not isinstance(wanted, dict) or not wanted or not wanted.keys() <= set(SETTINGS):
            raise Problem("bad-request", 'The body is not valid; send {"keep": "7d", "drop": "never"}, or one of them.')
        values = {name: wanted.get(name) for name in SETTINGS}
        if not all(isinstance(value, str) for value in wanted.values()):
            raise Problem("bad-request", "The value of each setting is a text.")
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
        try:
            facts = await self.facts(
                exchange, lambda: self._operations.configure(topic, values, base), lambda user: user.operate
            )
        except OtherSettings as other:
            if base is None:
                raise
            raise Problem("precondition-failed", f"{other}.", _tag(other.present.version)) from None
        return answer(facts, headers=_tag(facts["version"]))

    async def drain(self, exchange: Exchange) -> Response:
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=False))

    async def stop_draining(self, exchange: Exchange) -> Response:
        server = check_id("server ID", exchange.names["server"])
        return await self._run(exchange, lambda: self._operations.drain(server, stop=True))


def _tag(version: str) -> dict[str, str]:
    return {"etag": f'"{version}"'}


def _base(exchange: Exchange) -> str | None:
    """Return the version in If-Match; None if any version may be changed."""
    text = exchange.request.headers.get("if-match", "*").strip()
    if text == "*":
        return None
    match = _TAG.fullmatch(text)
    if match is None:
        raise Problem("bad-request", "If-Match is not valid; send the one ETag of a GET, or leave the header out.")
    return match[1]
