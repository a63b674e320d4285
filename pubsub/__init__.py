"""Durable, exactly-once publish/subscribe on ZeroMQ."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pubsub.client import AsyncCallHandler as AsyncCallHandler
    from pubsub.client import AsyncClient as AsyncClient
    from pubsub.client import AsyncHandler as AsyncHandler
    from pubsub.client import AsyncManyHandler as AsyncManyHandler
    from pubsub.client import AsyncPublisher as AsyncPublisher
    from pubsub.client import Batch as Batch
    from pubsub.client import BatchTicket as BatchTicket
    from pubsub.client import CallHandler as CallHandler
    from pubsub.client import CallState as CallState
    from pubsub.client import Client as Client
    from pubsub.client import DeadLetter as DeadLetter
    from pubsub.client import GroupFacts as GroupFacts
    from pubsub.client import GroupLetter as GroupLetter
    from pubsub.client import Handler as Handler
    from pubsub.client import Headers as Headers
    from pubsub.client import Later as Later
    from pubsub.client import ManyHandler as ManyHandler
    from pubsub.client import MemberFacts as MemberFacts
    from pubsub.client import Message as Message
    from pubsub.client import Publisher as Publisher
    from pubsub.client import Purged as Purged
    from pubsub.client import Reject as Reject
    from pubsub.client import Reply as Reply
    from pubsub.client import Request as Request
    from pubsub.client import Ticket as Ticket
    from pubsub.client import TopicDeleted as TopicDeleted
    from pubsub.client import TopicFacts as TopicFacts
    from pubsub.client import TopicSettings as TopicSettings
    from pubsub.client import TopicTimes as TopicTimes
    from pubsub.client import Transaction as Transaction
    from pubsub.client import write_rows as write_rows
    from pubsub.client import write_rows_async as write_rows_async
    from pubsub.client.errors import CallDiscarded as CallDiscarded
    from pubsub.client.errors import CallExpired as CallExpired
    from pubsub.client.errors import CallFailed as CallFailed
    from pubsub.client.errors import CallKept as CallKept
    from pubsub.client.errors import CallOver as CallOver
    from pubsub.client.errors import ClaimLost as ClaimLost
    from pubsub.client.errors import CommitInDoubt as CommitInDoubt
    from pubsub.client.errors import DatabaseOlder as DatabaseOlder
    from pubsub.client.errors import GroupDiffers as GroupDiffers
    from pubsub.client.errors import GroupEnded as GroupEnded
    from pubsub.client.errors import GroupFull as GroupFull
    from pubsub.client.errors import GroupInDoubt as GroupInDoubt
    from pubsub.client.errors import GroupSuspended as GroupSuspended
    from pubsub.client.errors import HistoryChanged as HistoryChanged
    from pubsub.client.errors import LifeEnded as LifeEnded
    from pubsub.client.errors import NoSuchCall as NoSuchCall
    from pubsub.client.errors import RangeLoss as RangeLoss
    from pubsub.client.errors import StartGone as StartGone
    from pubsub.config.settings import ClientSettings as ClientSettings
    from pubsub.embedded import Embedded as Embedded
    from pubsub.embedded import embedded as embedded
    from pubsub.errors import AfterFork as AfterFork
    from pubsub.errors import AuthorizedRefused as AuthorizedRefused
    from pubsub.errors import CallerError as CallerError
    from pubsub.errors import ConfigurationError as ConfigurationError
    from pubsub.errors import DataLoss as DataLoss
    from pubsub.errors import DecodeError as DecodeError
    from pubsub.errors import HandlerMisused as HandlerMisused
    from pubsub.errors import InDoubt as InDoubt
    from pubsub.errors import Interrupted as Interrupted
    from pubsub.errors import InvalidKey as InvalidKey
    from pubsub.errors import InvalidName as InvalidName
    from pubsub.errors import KeyRefused as KeyRefused
    from pubsub.errors import NotAllowed as NotAllowed
    from pubsub.errors import NotHeard as NotHeard
    from pubsub.errors import NotKnown as NotKnown
    from pubsub.errors import NotLetIn as NotLetIn
    from pubsub.errors import NotNow as NotNow
    from pubsub.errors import NotSubscribed as NotSubscribed
    from pubsub.errors import OperatorError as OperatorError
    from pubsub.errors import PeerError as PeerError
    from pubsub.errors import PubsubError as PubsubError
    from pubsub.errors import Refused as Refused
    from pubsub.errors import ServerSilent as ServerSilent
    from pubsub.errors import SettingRefused as SettingRefused
    from pubsub.errors import StateCopied as StateCopied
    from pubsub.errors import StorageError as StorageError
    from pubsub.errors import StoreDamaged as StoreDamaged
    from pubsub.errors import StoreFull as StoreFull
    from pubsub.errors import StoreInUse as StoreInUse
    from pubsub.errors import StoreNewer as StoreNewer
    from pubsub.errors import Superseded as Superseded
    from pubsub.errors import TooLarge as TooLarge
    from pubsub.errors import Unavailable as Unavailable
    from pubsub.services.aio import AsyncServiceClient as AsyncServiceClient
    from pubsub.services.client import ServiceClient as ServiceClient
    from pubsub.services.errors import CallError as CallError
    from pubsub.services.errors import CallRefused as CallRefused
    from pubsub.services.errors import CallTimeout as CallTimeout
    from pubsub.services.errors import HandlerOverran as HandlerOverran
    from pubsub.services.errors import NoWorker as NoWorker
    from pubsub.services.worker import Worker as Worker

_NAMES = {
    "pubsub.client": (
        "AsyncCallHandler AsyncClient AsyncHandler AsyncManyHandler AsyncPublisher Batch BatchTicket CallHandler "
        "CallState Client DeadLetter GroupFacts GroupLetter Handler Headers Later ManyHandler MemberFacts Message "
        "Publisher Purged Reject Reply Request Ticket TopicSettings TopicDeleted TopicFacts TopicTimes Transaction "
        "write_rows write_rows_async"
    ),
    "pubsub.client.errors": (
        "CallDiscarded CallExpired CallFailed CallKept CallOver ClaimLost CommitInDoubt DatabaseOlder GroupDiffers "
        "GroupEnded GroupFull GroupInDoubt GroupSuspended HistoryChanged LifeEnded NoSuchCall RangeLoss "
        "StartGone"
    ),
    "pubsub.config.settings": "ClientSettings",
    "pubsub.embedded": "Embedded embedded",
    "pubsub.errors": (
        "AfterFork AuthorizedRefused CallerError ConfigurationError DataLoss DecodeError HandlerMisused "
        "InDoubt Interrupted InvalidKey InvalidName KeyRefused NotAllowed NotHeard NotKnown NotLetIn NotNow "
        "NotSubscribed OperatorError PeerError PubsubError Refused ServerSilent SettingRefused StateCopied "
        "StorageError StoreDamaged StoreFull StoreInUse StoreNewer Superseded TooLarge Unavailable"
    ),
    "pubsub.services.aio": "AsyncServiceClient",
    "pubsub.services.client": "ServiceClient",
    "pubsub.services.errors": "CallError CallRefused CallTimeout HandlerOverran NoWorker",
    "pubsub.services.worker": "Worker",
}
"""Modules and the names that this package offers from each."""

_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `import pubsub` stays fast."""
    value: Any
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - slower than the rest of `import pubsub`.

        value = version("pirate-pubsub")
    elif name in _WHERE:
        value = getattr(import_module(_WHERE[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the offered names, including those that are not imported yet."""
    return sorted({*globals(), *__all__, "__version__"})


class _Package(ModuleType):
    """Keep `pubsub.embedded` bound to the function, although a module has the same name.

    The import system sets an imported module as an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "embedded" and isinstance(value, ModuleType):
            value = value.embedded
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
