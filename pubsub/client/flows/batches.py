"""Pass many messages to a handler at once: their effects and the position are one commit.

A handler that fails on several messages does not tell which of them is at fault. So after a failure, or after the end
of the process within a handler, the same messages are handed over one by one. Then the rules of `process` hold for
each: its attempts are counted, it waits, and it may become a dead letter.

The rule is docs/explanation/get.md, G9.
"""

from __future__ import annotations

import logging
from typing import Final

from pubsub.base.handler_errors import located
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.attempts import Attempt
from pubsub.client.flows.handlers import MANY
from pubsub.client.flows.processing import Processing

BATCH_MAX: Final = 500
"""Most messages of one transaction of `process_many` if the caller names no number."""

_log: Final = logging.getLogger("pubsub.client")


class BatchProcessing(Processing):
    """The call `process_many` on one session."""

    turn, takes = 1 << 62, MANY
    """A turn is one transaction of all that may be taken."""

    def plan(self, sub: Subscription, room: int) -> Taking | Loss:
        """Plan to take what is here, or one message if a handler failed on it or the process ended within one."""
        wall = self.session.clock.wall()
        if not sub.alone:
            taking = sub.take(room, wall)
            if isinstance(taking, Loss) or not taking.pieces:
                return taking
            piece = taking.pieces[0]
            if sub.cursor.attempt((piece.run.log, piece.run.offset + piece.start)) == 1:
                return taking
            sub.alone = taking.records
        return sub.take(1, wall)

    def batch_of(self, attempt: Attempt) -> list[Message] | None:
        """Return the messages of an attempt; the first is the one with the counted attempt."""
        messages = list(Batch(attempt.sub.topic, attempt.taking.pieces))
        attempt.message = messages[0]
        for message in messages[1:]:
            message.in_attempt(1)
        return messages

    def ended(self, attempt: Attempt, *, fsynced: bool, result: str = "taken") -> None:
        """Accept the commit of `ending`. `result`: word for the record."""
        super().ended(attempt, fsynced=fsynced, result=result)
        if attempt.row is None:
            attempt.sub.alone = max(0, attempt.sub.alone - attempt.size)

    def failed(self, attempt: Attempt, error: Exception) -> int:
        """Handle an exception of the handler, after the rollback; return 0 if the messages now come one by one."""
        if attempt.size == 1:
            return super().failed(attempt, error)
        topic, first = attempt.sub.topic, attempt.message.id
        self._untry(attempt)
        self.uncount(attempt)
        attempt.sub.alone = attempt.size
        self.session.counters["handler_errors"] += 1
        _log.warning(
            "handler failed on %d messages from %s of %s on, which now come one by one: %s",
            attempt.size, first, topic, located(error),
        )  # fmt: skip
        return 0
