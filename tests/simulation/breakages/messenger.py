"""Breakages of the Messenger: of its retries, and of its memory of received messages."""

from __future__ import annotations

import contextlib
from typing import Any

import pubsub.messenger.core
import pubsub.messenger.pending
import pubsub.messenger.seen
from tests.simulation.breakages.room import Room, substitute

breakage = Room()


@breakage("request retired by ACK")
def _(stack: contextlib.ExitStack) -> None:
    core = pubsub.messenger.core.MessengerCore
    arrived, acknowledged = core._arrived, core._acknowledged

    def arrives(self: Any, peer: Any, message_id: int, source: int, contents: Any, frames: Any, now: float) -> Any:
        if source and message_id and not peer.link.idempotent:
            self._acknowledge(peer, message_id, now)
        return arrived(self, peer, message_id, source, contents, frames, now)

    def acknowledges(self: Any, peer: Any, contents: Any) -> None:
        for pending in peer.pending.values():
            pending.token, pending.request = 0, pending.token
        acknowledged(self, peer, contents)
        for pending in peer.pending.values():
            pending.token = pending.request

    substitute(stack, core, "_arrived", arrives)
    substitute(stack, core, "_acknowledged", acknowledges)
    substitute(stack, pubsub.messenger.pending, "Pending", _Marked)


class _Marked(pubsub.messenger.pending.Pending):
    """A pending message that remembers its callback while its own is hidden."""

    request = 0


@breakage("seen set forgets")
def _(stack: contextlib.ExitStack) -> None:
    seen = pubsub.messenger.seen.Seen
    original = seen.see

    def see(self: Any, message_id: int) -> Any:
        self.__init__()
        return original(self, message_id)

    substitute(stack, seen, "see", see)
