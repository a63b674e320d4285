"""`/topics/{topic}/groups/…` for operators: look at consumer groups and act on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from pubsub.client.group_operator_calls import changed_values, check_group, check_ids
from pubsub.gateway.exchange import Exchange, answer, nothing
from pubsub.gateway.handlers.operations import Operating, Operations
from pubsub.gateway.problems import Problem
from pubsub.protocol import check_id, check_topic
from pubsub.web.tokens import User

_RELEASE: Final = {"member": str, "store": str, "lost_disk": bool, "force": bool}
_CHANGE: Final = ("on_lost", "lost_seconds", "attempts", "mode", "parts")


class Groups:
    """Handlers of requests about consumer groups.

    Args:
        operations: carries out the requests.
        operating: limits how many run at once.
    """

    def __init__(self, operations: Operations, operating: Operating) -> None:
        self._operations, self._operating = operations, operating

    async def list(self, exchange: Exchange) -> Response:
        """List the groups of a topic."""
        topic, user = check_topic(exchange.topic), exchange.user.name
        found = await self._look(exchange, lambda: {"groups": self._operations.groups(user, topic)})
        return answer({"topic": topic, "groups": [_shown(one) for one in found["groups"]]})

    async def get(self, exchange: Exchange) -> Response:
        """Show a group with its members and dead letters."""
        topic, group = _names(exchange)
        user = exchange.user.name
        found = await self._look(exchange, lambda: self._operations.group(user, topic, group))
        rows = {name: [_shown(one) for one in found[name]] for name in ("member_facts", "letters")}
        return answer(_shown(found) | rows)

    async def release(self, exchange: Exchange) -> Response:
        """Give up what a silent member holds."""
        wanted = await exchange.json()
        allowed = isinstance(wanted, dict) and "member" in wanted and wanted.keys() <= set(_RELEASE)
        if not allowed or not all(isinstance(wanted[name], _RELEASE[name]) for name in wanted):
            raise Problem("bad-request", 'The body is not valid; send {"member": "w1"}, and lost_disk, force or store.')
        values = {"client": check_id("client ID", wanted["member"]), "store": wanted.get("store", "")}
        flags = {name: wanted.get(name, False) for name in ("lost_disk", "force")}
        return await self._act(exchange, "release", values | flags)

    async def redrive(self, exchange: Exchange) -> Response:
        """Hand dead letters out again."""
        return await self._act(exchange, "redrive", {"ids": await _ids(exchange)})

    async def drop(self, exchange: Exchange) -> Response:
        """Delete dead letters."""
        return await self._act(exchange, "drop", {"ids": await _ids(exchange)})

    async def resume(self, exchange: Exchange) -> Response:
        """Resume a group that a restore suspended."""
        wanted = await exchange.json()
        if not isinstance(wanted, dict) or wanted.keys() != {"skip"} or not isinstance(wanted["skip"], bool):
            raise Problem("bad-request", 'The body is not valid; send {"skip": false}, or true to pass over the copy.')
        return await self._act(exchange, "resume", wanted)

    async def change(self, exchange: Exchange) -> Response:
        """Change values of a group."""
        wanted = await exchange.json()
        if not isinstance(wanted, dict) or not wanted.keys() <= set(_CHANGE):
            raise Problem("bad-request", f"The body is not valid; send one of {', '.join(_CHANGE)}.")
        return await self._act(exchange, "change", changed_values(*(wanted.get(name) for name in _CHANGE)))

    async def end(self, exchange: Exchange) -> Response:
        """End a group for all its members."""
        await self._act(exchange, "end", {"force": exchange.truth("force")})
        return nothing()

    async def _look(self, exchange: Exchange, function: Any) -> dict[str, Any]:
        def may(user: User) -> bool:
            return user.operate or user.may_get(exchange.topic)

        if not may(exchange.user):
            raise Problem(
                "not-allowed", f"This token may not receive {exchange.topic}; it needs the right get or operate."
            )
        return await self._operating.facts(exchange, function, may, "looks")

    async def _act(self, exchange: Exchange, action: str, values: dict[str, Any]) -> Response:
        topic, group = _names(exchange)
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
        return answer(
            await self._operating.facts(
                exchange,
                lambda: self._operations.act_on_group(action, topic, group, values),
                lambda user: user.operate,
            )
        )


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with numbers as text that JavaScript cannot represent."""
    return {name: str(value) if name in {"number", "counter"} else value for name, value in row.items()}


def _names(exchange: Exchange) -> tuple[str, str]:
    topic, group = exchange.topic, exchange.names["group"]
    check_group(topic, group)
    return topic, group


async def _ids(exchange: Exchange) -> list[str]:
    """Return the IDs of the letters in the body; an empty body means all of them.

    Raises:
        Problem, CallerError: the body or an ID is not valid.
    """
    wanted = await exchange.json(empty={})
    if not isinstance(wanted, dict) or not wanted.keys() <= {"ids"}:
        raise Problem("bad-request", 'The body is not valid; send nothing, or {"ids": ["0123456789abcdef.7"]}.')
    ids = wanted.get("ids", [])
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise Problem("bad-request", "ids is a list of texts.")
    check_ids(ids)
    return ids
