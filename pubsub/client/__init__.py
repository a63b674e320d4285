"""Offer the client to applications."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.client.aio import AsyncClient as AsyncClient
    from pubsub.client.aio import AsyncPublisher as AsyncPublisher
    from pubsub.client.arguments import Headers as Headers
    from pubsub.client.client import Client as Client
    from pubsub.client.core.calling import CallState as CallState
    from pubsub.client.core.calling import Reply as Reply
    from pubsub.client.core.calling import Request as Request
    from pubsub.client.core.message import Batch as Batch
    from pubsub.client.core.message import Message as Message
    from pubsub.client.core.outcomes import Later as Later
    from pubsub.client.core.outcomes import Reject as Reject
    from pubsub.client.dead_letters import DeadLetter as DeadLetter
    from pubsub.client.filling import BatchTicket as BatchTicket
    from pubsub.client.flows.handlers import AsyncHandler as AsyncHandler
    from pubsub.client.flows.handlers import AsyncManyHandler as AsyncManyHandler
    from pubsub.client.flows.handlers import Handler as Handler
    from pubsub.client.flows.handlers import ManyHandler as ManyHandler
    from pubsub.client.flows.serving import AsyncCallHandler as AsyncCallHandler
    from pubsub.client.flows.serving import CallHandler as CallHandler
    from pubsub.client.group_facts import GroupFacts as GroupFacts
    from pubsub.client.group_facts import GroupLetter as GroupLetter
    from pubsub.client.group_facts import MemberFacts as MemberFacts
    from pubsub.client.look_back import TopicTimes as TopicTimes
    from pubsub.client.outgoing.writing import write_rows as write_rows
    from pubsub.client.outgoing.writing import write_rows_async as write_rows_async
    from pubsub.client.publisher import Publisher as Publisher
    from pubsub.client.storage.transaction import Ticket as Ticket
    from pubsub.client.storage.transaction import Transaction as Transaction
    from pubsub.client.topic_deletion import TopicDeleted as TopicDeleted
    from pubsub.client.topic_list import TopicFacts as TopicFacts
    from pubsub.client.topic_objects import Purged as Purged
    from pubsub.client.topic_settings import TopicSettings as TopicSettings

_WHERE = {
    "AsyncCallHandler": "flows.serving",
    "AsyncClient": "aio",
    "AsyncHandler": "flows.handlers",
    "AsyncManyHandler": "flows.handlers",
    "AsyncPublisher": "aio",
    "Batch": "core.message",
    "BatchTicket": "filling",
    "CallHandler": "flows.serving",
    "CallState": "core.calling",
    "Client": "client",
    "DeadLetter": "dead_letters",
    "GroupFacts": "group_facts",
    "GroupLetter": "group_facts",
    "Handler": "flows.handlers",
    "Headers": "arguments",
    "Later": "core.outcomes",
    "ManyHandler": "flows.handlers",
    "MemberFacts": "group_facts",
    "Message": "core.message",
    "Publisher": "publisher",
    "Reject": "core.outcomes",
    "Reply": "core.calling",
    "Request": "core.calling",
    "Purged": "topic_objects",
    "Ticket": "storage.transaction",
    "TopicDeleted": "topic_deletion",
    "TopicFacts": "topic_list",
    "TopicSettings": "topic_settings",
    "TopicTimes": "look_back",
    "Transaction": "storage.transaction",
    "write_rows": "outgoing.writing",
    "write_rows_async": "outgoing.writing",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a name at its first use, since the commands need few of them."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pubsub.client.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    """List the offered names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
