"""Durable, exactly-once publish/subscribe on ZeroMQ."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.client import (
        AsyncCallHandler,
        AsyncClient,
        AsyncHandler,
        Batch,
        CallHandler,
        CallState,
        Client,
        DeadLetter,
        Handler,
        Message,
        Publisher,
        Reply,
        Request,
        Ticket,
        Transaction,
    )
    from pubsub.client.errors import CallDiscarded, CallExpired, CallFailed, CallKept, CallOver, NoSuchCall
    from pubsub.config.settings import ClientSettings
    from pubsub.embedded import Embedded, embedded
    from pubsub.errors import (
        AfterFork,
        AuthorizedRefused,
        CallerError,
        ConfigurationError,
        DataLoss,
        DecodeError,
        HandlerMisused,
        InDoubt,
        Interrupted,
        InvalidKey,
        InvalidName,
        NotAllowed,
        NotHeard,
        NotKnown,
        NotLetIn,
        NotNow,
        NotSubscribed,
        OperatorError,
        PeerError,
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
    from pubsub.services.errors import CallError, CallRefused, CallTimeout, HandlerOverran, NoWorker
    from pubsub.services.worker import Worker

_ERRORS = (
    "AfterFork",
    "AuthorizedRefused",
    "CallerError",
    "ConfigurationError",
    "DataLoss",
    "DecodeError",
    "HandlerMisused",
    "HandlerOverran",
    "InDoubt",
    "Interrupted",
    "InvalidKey",
    "InvalidName",
    "NotAllowed",
    "NotHeard",
    "NotKnown",
    "NotLetIn",
    "NotNow",
    "NotSubscribed",
    "OperatorError",
    "PeerError",
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
_CALL_ERRORS = ("CallDiscarded", "CallExpired", "CallFailed", "CallKept", "CallOver", "NoSuchCall")
_SERVICE_ERRORS = ("CallError", "CallRefused", "CallTimeout", "HandlerOverran", "NoWorker")
_CLIENT = (
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
)
_WHERE = (
    dict.fromkeys(_ERRORS, "pubsub.errors")
    | dict.fromkeys(_CALL_ERRORS, "pubsub.client.errors")
    | dict.fromkeys(_SERVICE_ERRORS, "pubsub.services.errors")
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
    "AsyncCallHandler",
    "AsyncClient",
    "AsyncHandler",
    "AsyncServiceClient",
    "AuthorizedRefused",
    "Batch",
    "CallDiscarded",
    "CallError",
    "CallExpired",
    "CallFailed",
    "CallHandler",
    "CallKept",
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
    "DecodeError",
    "Embedded",
    "Handler",
    "HandlerMisused",
    "HandlerOverran",
    "InDoubt",
    "Interrupted",
    "InvalidKey",
    "InvalidName",
    "Message",
    "NoSuchCall",
    "NoWorker",
    "NotAllowed",
    "NotHeard",
    "NotKnown",
    "NotLetIn",
    "NotNow",
    "NotSubscribed",
    "OperatorError",
    "PeerError",
    "Publisher",
    "PubsubError",
    "Refused",
    "Reply",
    "Request",
    "ServiceClient",
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
    value: Any
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - it takes longer than all else of `import pubsub`.

        value = version("pirate-pubsub")
    elif name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The names that it offers, before they are imported too."""
    return sorted({*globals(), *__all__, "__version__"})


class _Package(ModuleType):
    """This package, in which `embedded` is the function, though a module of that name makes it.

    The import system sets a module that was imported as an attribute of its package.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "embedded" and isinstance(value, ModuleType):
            value = value.embedded
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
