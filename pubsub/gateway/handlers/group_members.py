"""`/topics/{topic}/groups/{group}/members/…`: HTTP readers that share the messages of a topic."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import quote

from starlette.responses import Response

from pubsub.base.limits import ATTEMPTS_MAX, LOST_SECONDS_MIN, PARTS_MAX
from pubsub.client import Later, Reject
from pubsub.client.flows.group_waits import GroupOptions, check_one_topic, make_wish
from pubsub.errors import NotSubscribed, PubsubError
from pubsub.gateway import group_shapes
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, answer, nothing
from pubsub.gateway.group_batches import GroupBatches, Key, OpenBatch, check_found, facts
from pubsub.gateway.handlers.look_back import start_of
from pubsub.gateway.limits import CONFIRM_SECONDS, CONFIRM_SECONDS_MAX, GROUP_RECORDS, POLL_RECORDS, WAIT_SECONDS_MAX
from pubsub.gateway.polling import LEAST_SECONDS
from pubsub.gateway.problems import Problem
from pubsub.gateway.readers import Readers
from pubsub.gateway.registry import Registry, Subscriber
from pubsub.gateway.sessions import Needs
from pubsub.protocol import check_id, check_new_topic
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, WAIT

_log: Final = logging.getLogger("pubsub.gateway")

LOST_SECONDS_MAX: Final = 365 * 24 * 3600.0
"""Longest time before a new group gives up the claims of a silent member."""


class GroupMembers:
    """Handlers of members of consumer groups.

    Args:
        registry: has the members, too.
        clients: their clients.
        readers: the requests that read at present.
        stopping: set when the gateway stops.

    Attributes:
        batches: the open batches.
        delivered: messages delivered since the start.
    """

    def __init__(self, registry: Registry, clients: Clients, readers: Readers, stopping: asyncio.Event) -> None:
        self._registry, self._clients, self._readers, self._stopping = registry, clients, readers, stopping
        self.batches = GroupBatches(clients)
        self.delivered = 0

    async def settle(self) -> None:
        """Open the client of each member, so that it gives back what an earlier run of the gateway held."""
        for one in self._registry.all():
            group, slash, member = one.name.partition("/")
            if slash:
                key = Key(one.user, one.topic, group, member)
                try:
                    async with self._clients.member(key.user, key.client):
                        pass
                except (PubsubError, Problem) as error:
                    _log.warning("member %s of group %s of %s: %s", member, group, one.topic, error)

    def _key(self, exchange: Exchange) -> Key:
        """Return the member that a request names.

        Raises:
            Problem: the user may not receive the topic. InvalidName: a name is not valid.
        """
        if not exchange.user.may_get(exchange.topic):
            raise Problem("not-allowed", f"This token may not receive {exchange.topic}; it needs the right get.")
        check_one_topic(exchange.topic)
        topic, names = check_new_topic(exchange.topic), exchange.names
        group, member = check_id("group", names["group"]), check_id("member", names["member"])
        found = Key(exchange.user.name, topic, group, member)
        check_id("member's client ID", found.client)
        return found

    def _found(self, exchange: Exchange) -> tuple[Key, Subscriber]:
        """As `_key`, for an existing member.

        Raises:
            Problem: there is none.
        """
        key = self._key(exchange)
        found = self._registry.find(key.user, key.topic, key.name)
        if found is None:
            raise Problem(
                "not-subscribed", f"Group {key.group} of {key.topic} has no member {key.member}; PUT it first."
            )
        return key, found

    async def put(self, exchange: Exchange) -> Response:
        """Join a group, or make it; a repeat checks that the service still has it."""
        key, wanted = self._key(exchange), _values(exchange)
        start = start_of(exchange)
        wish = make_wish(start, wanted)
        before = self._registry.find(key.user, key.topic, key.name)
        if before is None:
            self._registry.put(Subscriber(key.user, key.topic, key.name))
        try:
            async with self._clients.member(key.user, key.client) as client:
                values = await client.join(key.topic, key.group, wish)
        except Exception:
            if before is None:
                self._registry.remove(Subscriber(key.user, key.topic, key.name))
            raise
        made = group_shapes.GroupMember(
            key.topic, key.group, key.member, key.client, values.mode, values.parts, values.on_lost,
            values.lost_ms / 1000, values.attempts,
        )  # fmt: skip
        return answer(made, 200 if before is not None else 201)

    async def get(self, exchange: Exchange) -> Response:
        """Show a member."""
        key, _ = self._found(exchange)
        batch = self.batches.find(key)
        opened = None if batch is None or batch.outcome else confirmation(key, batch)
        return answer(group_shapes.OpenGroupMember(key.topic, key.group, key.member, key.client, opened))

    async def delete(self, exchange: Exchange) -> Response:
        """Leave the group, and give back an open batch."""
        key, found = self._found(exchange)
        await self._readers.send_away(_reading(key))
        async with self._readers.reading(_reading(key)):
            await self.batches.give_back(key)
            async with self._clients.member(key.user, key.client) as client:
                with contextlib.suppress(NotSubscribed):
                    await client.leave(key.topic, group=key.group)
            self._registry.remove(found)
        return nothing()

    async def poll(self, exchange: Exchange) -> Response:
        """Wait for the next batch; an open one comes again."""
        key, _ = self._found(exchange)
        most = exchange.count("max", POLL_RECORDS, GROUP_RECORDS)
        wait = max(exchange.number("wait", 0.0, WAIT_SECONDS_MAX), LEAST_SECONDS)
        seconds = exchange.number("confirm", CONFIRM_SECONDS, CONFIRM_SECONDS_MAX, 1.0)
        async with self._readers.reading(_reading(key)) as reader, self._ends(exchange, reader.told) as ends:
            batch = await self.batches.take(key, most, wait, seconds, ends)
        exchange.check(_receiving(exchange))
        if batch is None:
            return nothing()
        self.delivered += len(batch.messages)
        path = confirmation(key, batch)
        shown = group_shapes.GroupBatch(
            key.topic, key.group, key.member, path, batch.seconds, [facts(message) for message in batch.left]
        )
        return answer(shown, 200, {"link": f'<{path}>; rel="confirm"', "cache-control": "no-store"})

    async def confirm(self, exchange: Exchange) -> Response:
        """Mark the messages of a batch as done; may be repeated."""
        key, _ = self._found(exchange)
        check_found(await self.batches.confirm(key, _number(exchange, key)), key.member)
        return nothing()

    async def later(self, exchange: Exchange) -> Response:
        """Put messages of a batch off: they come again after some seconds, at any member."""
        wanted = await _decision(exchange, "seconds", '{"seconds": 60}')
        seconds = wanted["seconds"]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise Problem("bad-request", "seconds is a number.")
        return await self._decide(exchange, wanted, Later(seconds))

    async def reject(self, exchange: Exchange) -> Response:
        """Make messages of a batch dead letters of the group at once."""
        wanted = await _decision(exchange, "reason", '{"reason": "no such customer"}')
        if not isinstance(wanted["reason"], str):
            raise Problem("bad-request", "reason is a text.")
        return await self._decide(exchange, wanted, Reject(wanted["reason"]))

    async def _decide(self, exchange: Exchange, wanted: dict[str, Any], error: Later | Reject) -> Response:
        key, _ = self._found(exchange)
        ids = wanted.get("ids", [])
        done, left = await self.batches.decide(key, _number(exchange, key), ids, error)
        return answer(group_shapes.GroupDecided(key.topic, key.group, key.member, done, left))

    @asynccontextmanager
    async def _ends(self, exchange: Exchange, told: asyncio.Event) -> AsyncIterator[list[asyncio.Future[Any]]]:
        """Return the events that end a waiting request, as `Subscribers` does."""
        with exchange.lasting(_receiving(exchange)) as lost:
            endings = exchange.gone(), told.wait(), self._stopping.wait(), lost.wait()
            waits = [asyncio.ensure_future(wait) for wait in endings]
            try:
                yield list(waits)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)


def _number(exchange: Exchange, key: Key) -> int:
    """Return the number of the batch in the path.

    Raises:
        Problem: no batch has it.
    """
    text = exchange.names["batch"]
    number = int(text) if text.isdecimal() and len(text) <= 18 else 0
    if not number:
        check_found(None, key.member)
    return number


async def _decision(exchange: Exchange, name: str, example: str) -> dict[str, Any]:
    """Return the body of a request that decides about messages of a batch.

    Args:
        name: of the value that it must have.

    Raises:
        Problem: it is not valid.
    """
    wanted = await exchange.json()
    if not isinstance(wanted, dict) or name not in wanted or not wanted.keys() <= {name, "ids"}:
        raise Problem("bad-request", f"The body is not valid; send {example}, and ids for some messages of the batch.")
    ids = wanted.get("ids", [""])
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        raise Problem("bad-request", "ids is a list of the messages' id; leave it out for all of the batch.")
    return wanted


def confirmation(key: Key, batch: OpenBatch) -> str:
    """Return the path that confirms a batch by DELETE."""
    topic = quote(key.topic, safe="")
    return f"/topics/{topic}/groups/{key.group}/members/{key.member}/batches/{batch.number}"


def _reading(key: Key) -> tuple[str, str, str]:
    return key.user, key.topic, key.name


def _receiving(exchange: Exchange) -> Needs:
    return lambda user: user.may_get(exchange.topic)


def _values(exchange: Exchange) -> GroupOptions:
    """Return the values of a new group that the query names; None for the others.

    Raises:
        Problem: one is not allowed.
    """
    query = exchange.request.query_params

    def one_of(name: str, allowed: tuple[str, ...]) -> str | None:
        text = query.get(name)
        if text is not None and text not in allowed:
            raise Problem("bad-request", f"{name} must be {' or '.join(allowed)}.")
        return text

    def count(name: str, most: int) -> int | None:
        return exchange.count(name, 1, most) if name in query else None

    seconds = (
        exchange.number("lost_seconds", 0.0, LOST_SECONDS_MAX, LOST_SECONDS_MIN) if "lost_seconds" in query else None
    )
    values = {
        "mode": one_of("mode", (SHARED, KEYED)),
        "parts": count("parts", PARTS_MAX),
        "on_lost": one_of("on_lost", (WAIT, REDELIVER)),
        "lost_seconds": seconds,
        "attempts": count("attempts", ATTEMPTS_MAX),
    }
    return cast("GroupOptions", values)
