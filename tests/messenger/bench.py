"""The Messenger's core on a bench: a test sets the time, and takes the outgoing messages."""

import random

from pubsub.messenger.core import MessengerCore
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.limits import MessengerLimits

LIMITS = MessengerLimits(
    retry_seconds=1.0, retry_seconds_max=4.0, ack_seconds=0.1, idle_seconds=100.0, peers_max=3, callbacks_max=4
)
LATE = 1_000.0
ROUTING = b"\x01" * 16


class Bench:
    """A core with one connection, one ordinary and one idempotent endpoint, and what they were called with."""

    def __init__(self) -> None:
        self.now = 0.0
        self.core = MessengerCore(1, random.Random(1), self.reply, LIMITS)
        self.requests = []
        self.answers = []
        self.connection = self.core.connected("tcp://127.0.0.1:1")
        self.server = self.connection.peer
        self.ordinary = self.core.opened("tcp://127.0.0.1:2", self.requests.append)
        self.idempotent = self.core.opened("tcp://127.0.0.1:3", self.requests.append, idempotent=True)

    def reply(self, request, contents):
        self.core.answer(request, (contents,), self.now)

    def ask(self, contents=b"question", *, retry=True):
        """A request on the connection; its token and its first frame."""
        token = self.core.register(self.server, lambda *arguments: self.answers.append(arguments), retry=retry)
        self.core.send(self.server, (contents,), self.now, token=token, retry=retry)
        ((_, head, _),) = self.core.take()
        return token, head

    def receive(self, link, message_id, source, destination, contents=b"", frames=(), routing=None):
        """A message from the other side, and what is called for it."""
        routing = routing if routing is not None else (b"" if link is self.connection else ROUTING)
        head = pack(message_id, source, destination) + contents
        call = self.core.receive(link, routing, head, list(frames), self.now)
        if call is not None:
            call[0](*call[1])
        return call

    def sent(self):
        """What is to be sent now, as (prefix numbers, contents)."""
        out = []
        for _, head, _ in self.core.take():
            prefix = unpack(head)
            out.append((*prefix[:3], head[prefix.length :]))
        return out

    def pass_time(self, seconds):
        """Let time pass; what is sent meanwhile."""
        out, end = [], self.now + seconds
        while (due := self.core.deadline()) is not None and due <= end:
            self.now = due
            self.core.tick(due)
            out += self.sent()
        self.now = end
        return out
