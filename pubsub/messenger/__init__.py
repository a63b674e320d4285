"""The Messenger: acknowledged, retried, de-duplicated messages with callbacks over ZeroMQ.

    >>> import time
    >>> from pubsub.messenger import Messenger
    >>> with Messenger() as bank, Messenger() as customer:
    ...     endpoint = bank.listen("tcp://127.0.0.1:0", lambda request: request.reply(b"paid " + request.contents))
    ...     answers = []
    ...     token = customer.send(endpoint, b"12.50", lambda peer, contents, frames: answers.append(contents))
    ...     customer.wait(lambda: bool(answers), deadline=time.monotonic() + 5.0)
    ...     answers
    True
    [b'paid 12.50']

The Messenger repeats the request until the answer arrives, and the answer until it is acknowledged. It calls the
server loop once for the request, and the callback once for the answer. `wait` drives the sockets on the calling
thread. If no thread calls `wait`, the Messenger's own thread calls the callbacks.
"""

from pubsub.messenger.core import Counters
from pubsub.messenger.curve import CurveClient, CurveServer
from pubsub.messenger.framing import FIRST_CALLBACK, Callback
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.loop import Ticker
from pubsub.messenger.messenger import Messenger
from pubsub.messenger.peer import Peer, Request
from pubsub.messenger.redial import Refusal

__all__ = [
    "FIRST_CALLBACK",
    "Callback",
    "Counters",
    "CurveClient",
    "CurveServer",
    "Messenger",
    "MessengerLimits",
    "Peer",
    "Refusal",
    "Request",
    "Ticker",
]
