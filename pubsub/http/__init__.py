"""Reliable HTTP: requests that happen once, whatever is killed when (docs/http.md). Needs the extra `http`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.http.blocking import ReliableHttp
    from pubsub.http.core.answers import Answer
    from pubsub.http.core.outgoing import Outgoing, State
    from pubsub.http.errors import JobFailed, RequestExpired, RequestKept, RequestOver, RequestRefused
    from pubsub.http.receiver import Receiver
    from pubsub.http.routes import Handler, Request
    from pubsub.http.sender import AsyncReliableHttp
    from pubsub.http.settings import HttpSettings

_WHERE = {
    "Answer": "pubsub.http.core.answers",
    "AsyncReliableHttp": "pubsub.http.sender",
    "Handler": "pubsub.http.routes",
    "HttpSettings": "pubsub.http.settings",
    "JobFailed": "pubsub.http.errors",
    "Outgoing": "pubsub.http.core.outgoing",
    "Receiver": "pubsub.http.receiver",
    "ReliableHttp": "pubsub.http.blocking",
    "Request": "pubsub.http.routes",
    "RequestExpired": "pubsub.http.errors",
    "RequestKept": "pubsub.http.errors",
    "RequestOver": "pubsub.http.errors",
    "RequestRefused": "pubsub.http.errors",
    "State": "pubsub.http.core.outgoing",
}

__all__ = [
    "Answer",
    "AsyncReliableHttp",
    "Handler",
    "HttpSettings",
    "JobFailed",
    "Outgoing",
    "Receiver",
    "ReliableHttp",
    "Request",
    "RequestExpired",
    "RequestKept",
    "RequestOver",
    "RequestRefused",
    "State",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: the commands load no more than they use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names that it offers, before they are imported too."""
    return sorted({*globals(), *__all__})
