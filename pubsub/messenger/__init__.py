"""The Messenger: acknowledged, retried, de-duplicated messages with callbacks over ZeroMQ."""

from pubsub.messenger.framing import FIRST_CALLBACK, Callback
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.messenger import Messenger, Ticker
from pubsub.messenger.peer import Peer, Request

__all__ = ["FIRST_CALLBACK", "Callback", "Messenger", "MessengerLimits", "Peer", "Request", "Ticker"]
