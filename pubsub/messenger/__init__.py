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

The request is repeated until its answer is here, and the answer until it is acknowledged; the server loop is called
once for it, and so is the callback. `wait` drives the sockets on the calling thread; a program that does not call it
has its callbacks called by the Messenger's own thread.
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
