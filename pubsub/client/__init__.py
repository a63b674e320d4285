"""The client: what applications call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.client.aio import AsyncClient
    from pubsub.client.client import Client
    from pubsub.client.core.calling import CallState, Reply, Request
    from pubsub.client.core.message import Batch, Message
    from pubsub.client.dead_letters import DeadLetter
    from pubsub.client.flows.processing import AsyncHandler, Handler
    from pubsub.client.flows.serving import AsyncCallHandler, CallHandler
    from pubsub.client.publisher import Publisher
    from pubsub.client.storage.transaction import Ticket, Transaction

_WHERE = {
    "AsyncCallHandler": "flows.serving",
    "AsyncClient": "aio",
    "AsyncHandler": "flows.processing",
    "Batch": "core.message",
    "CallHandler": "flows.serving",
    "CallState": "core.calling",
    "Client": "client",
    "DeadLetter": "dead_letters",
    "Handler": "flows.processing",
    "Message": "core.message",
    "Publisher": "publisher",
    "Reply": "core.calling",
    "Request": "core.calling",
    "Ticket": "storage.transaction",
    "Transaction": "storage.transaction",
}

__all__ = [
    "AsyncCallHandler",
    "AsyncClient",
    "AsyncHandler",
    "Batch",
    "CallHandler",
    "CallState",
    "Client",
    "DeadLetter",
    "Handler",
    "Message",
    "Publisher",
    "Reply",
    "Request",
    "Ticket",
    "Transaction",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: the commands need few of them."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pubsub.client.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    """The names that it offers, before they are imported too."""
    return sorted({*globals(), *__all__})
