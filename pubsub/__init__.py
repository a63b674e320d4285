"""Durable, exactly-once publish/subscribe on ZeroMQ."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.client import (
        AsyncClient,
        AsyncHandler,
        AsyncServiceHandler,
        Batch,
        CallState,
        Client,
        DeadLetter,
        Handler,
        Message,
        Publisher,
        Reply,
        Request,
        ServiceHandler,
        Ticket,
        Transaction,
    )
    from pubsub.config.settings import ClientSettings
    from pubsub.embedded import Embedded, embedded
    from pubsub.errors import (
        AfterFork,
        CallerError,
        CallExpired,
        CallFailed,
        CallOver,
        ConfigurationError,
        DataLoss,
        HandlerMisused,
        InDoubt,
        Interrupted,
        InvalidName,
        NoReply,
        NoSuchCall,
        NotSubscribed,
        PubsubError,
        Refused,
        SettingRefused,
        StateCopied,
        StorageError,
        StoreDamaged,
        StoreFull,
        StoreInUse,
        StoreNewer,
        Superseded,
        TooLarge,
        Unavailable,
    )
    from pubsub.services.aio import AsyncServiceClient
    from pubsub.services.client import ServiceClient
    from pubsub.services.errors import CallError, CallRefused, CallTimeout, NoWorker
    from pubsub.services.worker import Worker

_ERRORS = (
    "AfterFork",
    "CallExpired",
    "CallFailed",
    "CallOver",
    "CallerError",
    "ConfigurationError",
    "DataLoss",
    "HandlerMisused",
    "InDoubt",
    "Interrupted",
    "InvalidName",
    "NoReply",
    "NoSuchCall",
    "NotSubscribed",
    "PubsubError",
    "Refused",
    "SettingRefused",
    "StateCopied",
    "StorageError",
    "StoreDamaged",
    "StoreFull",
    "StoreInUse",
    "StoreNewer",
    "Superseded",
    "TooLarge",
    "Unavailable",
)
_CALL_ERRORS = ("CallError", "CallRefused", "CallTimeout", "NoWorker")
_CLIENT = (
    "AsyncClient",
    "AsyncHandler",
    "AsyncServiceHandler",
    "Batch",
    "CallState",
    "Client",
    "DeadLetter",
    "Handler",
    "Message",
    "Publisher",
    "Reply",
    "Request",
    "ServiceHandler",
    "Ticket",
    "Transaction",
)
_WHERE = (
    dict.fromkeys(_ERRORS, "pubsub.errors")
    | dict.fromkeys(_CALL_ERRORS, "pubsub.services.errors")
    | dict.fromkeys(_CLIENT, "pubsub.client")
    | {
        "AsyncServiceClient": "pubsub.services.aio",
        "ServiceClient": "pubsub.services.client",
        "Worker": "pubsub.services.worker",
    }
    | {"ClientSettings": "pubsub.config.settings", "Embedded": "pubsub.embedded", "embedded": "pubsub.embedded"}
)

__all__ = [
    "AfterFork",
    "AsyncClient",
    "AsyncHandler",
    "AsyncServiceClient",
    "AsyncServiceHandler",
    "Batch",
    "CallError",
    "CallExpired",
    "CallFailed",
    "CallOver",
    "CallRefused",
    "CallState",
    "CallTimeout",
    "CallerError",
    "Client",
    "ClientSettings",
    "ConfigurationError",
    "DataLoss",
    "DeadLetter",
    "Embedded",
    "Handler",
    "HandlerMisused",
    "InDoubt",
    "Interrupted",
    "InvalidName",
    "Message",
    "NoReply",
    "NoSuchCall",
    "NoWorker",
    "NotSubscribed",
    "Publisher",
    "PubsubError",
    "Refused",
    "Reply",
    "Request",
    "ServiceClient",
    "ServiceHandler",
    "SettingRefused",
    "StateCopied",
    "StorageError",
    "StoreDamaged",
    "StoreFull",
    "StoreInUse",
    "StoreNewer",
    "Superseded",
    "Ticket",
    "TooLarge",
    "Transaction",
    "Unavailable",
    "Worker",
    "embedded",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for, so that `import pubsub` costs nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package, in which `embedded` is the function, though a module of that name makes it.

    The import system sets a module that was imported as an attribute of its package.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "embedded" and isinstance(value, ModuleType):
            value = value.embedded
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
