"""Members of groups that claim messages and are never heard again, as after a kill: each sends one WORK."""

from __future__ import annotations

from itertools import count
from typing import Any

from pubsub.client import Client
from pubsub.client.topic_settings import proxies_of
from pubsub.protocol import Outcome
from pubsub.protocol.group_bodies import Holding, split_holdings
from pubsub.protocol.groups import Work
from tests.faults.cluster import until

numbers = count(1 << 62)


def work(client: Client, topic: str, group: str, member: str, **more: Any) -> tuple[Holding, ...]:
    """Send a WORK in the name of a member, and return what it holds and is offered."""
    (found,) = [one for one in client.groups(topic) if one.name == group]
    number = next(numbers)
    store = f"{hash(member) & 0xFFFFFFFFFFFFFFFF:016x}"
    request: Any = Work(member, topic, group, found.number, number, store, number, **more)
    with proxies_of(client._session) as proxies:
        status = proxies.ask(request)
    assert status.outcome is Outcome.SUCCESS, status
    return split_holdings(status.body)[0]


def claims(client: Client, topic: str, group: str, member: str, most: int = 10) -> int:
    """Let a member claim up to so many messages, and return their number when they are in doubt."""
    held = work(client, topic, group, member, records_max=most, claim=1)
    number = sum(one.range.high - one.range.low for one in held if one.kind == "held")

    def doubted() -> bool:
        (found,) = [one for one in client.group_members(topic, group) if one.client == member]
        return found.in_doubt == number

    until(doubted, "they are in doubt")
    return number
