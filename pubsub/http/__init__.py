"""Reliable HTTP: each request has its effect exactly once, even if processes are killed (docs/http.md).

It needs the extra `http`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.http.blocking import ReliableHttp as ReliableHttp
    from pubsub.http.core.answers import Answer as Answer
    from pubsub.http.core.outgoing import Outgoing as Outgoing
    from pubsub.http.core.outgoing import State as State
    from pubsub.http.errors import JobFailed as JobFailed
    from pubsub.http.errors import RequestExpired as RequestExpired
    from pubsub.http.errors import RequestKept as RequestKept
    from pubsub.http.errors import RequestOver as RequestOver
    from pubsub.http.errors import RequestRefused as RequestRefused
    from pubsub.http.receiver import Receiver as Receiver
    from pubsub.http.routes import Handler as Handler
    from pubsub.http.routes import Request as Request
    from pubsub.http.sender import AsyncReliableHttp as AsyncReliableHttp
    from pubsub.http.settings import HttpSettings as HttpSettings

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

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that commands load only the modules that they need."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all public names, including those not imported yet."""
    return sorted({*globals(), *__all__})
