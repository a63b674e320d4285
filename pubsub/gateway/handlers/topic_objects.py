"""Topics as objects for operators: create one, purge one, and delete one."""

from __future__ import annotations

from starlette.responses import Response

from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.handlers.operations import Operating, Operations
from pubsub.gateway.problems import Problem
from pubsub.protocol import check_topic
from pubsub.protocol.topic_settings import SETTINGS
from pubsub.web.tokens import User


def _operates(user: User) -> bool:
    return user.operate


class TopicObjects:
    """Handlers for operators.

    Args:
        operations: carries out the requests.
        operating: limits how many run at once.
    """

    def __init__(self, operations: Operations, operating: Operating) -> None:
        self._operations, self._operating = operations, operating

    async def create(self, exchange: Exchange) -> Response:
        """Create a topic; 201 if it is new, 200 if it exists with the same settings."""
        topic, wanted = check_topic(exchange.topic), await exchange.json(empty={})
        if not isinstance(wanted, dict) or not wanted.keys() <= set(SETTINGS):
            raise Problem("bad-request", 'The body is not valid; send nothing, or {"keep": "7d", "drop": "never"}.')
        if not all(isinstance(value, str) for value in wanted.values()):
            raise Problem("bad-request", "The value of each setting is a text.")
        self._check(exchange)
        values = {name: wanted.get(name) for name in SETTINGS}
        facts = await self._operating.facts(exchange, lambda: self._operations.create(topic, values), _operates)
        return answer(facts, 201 if facts.pop("new") else 200)

    async def purge(self, exchange: Exchange) -> Response:
        """Delete the stored messages of a topic; the body says whether unread ones go, too."""
        topic, wanted = check_topic(exchange.topic), await exchange.json()
        if not isinstance(wanted, dict) or wanted.keys() != {"unread"} or not isinstance(wanted["unread"], bool):
            raise Problem("bad-request", 'The body is not valid; send {"unread": false}, or true to delete all.')
        self._check(exchange)
        unread = wanted["unread"]
        return answer(
            await self._operating.facts(exchange, lambda: self._operations.purge(topic, unread=unread), _operates)
        )

    async def delete(self, exchange: Exchange) -> Response:
        """Delete a topic; one with subscribers only by force."""
        topic, force = check_topic(exchange.topic), exchange.truth("force")
        self._check(exchange)
        return answer(
            await self._operating.facts(exchange, lambda: self._operations.delete(topic, force=force), _operates)
        )

    @staticmethod
    def _check(exchange: Exchange) -> None:
        if not exchange.user.operate:
            raise Problem("not-allowed", "This token lacks the right operate.")
