"""The durable change and the error by which an application learns of a loss, or of the deletion of a topic.

A loss names its first and last record, and is kept as a dead letter. After the deletion of a topic the server knows
what a subscriber had not acknowledged. If nothing of that is lost, or if the server does not know it, no record is
named, and there is no dead letter.

The rule is docs/explanation/deletion.md, UD7.
"""

from __future__ import annotations

from typing import Final

from pubsub.client.core.changes import DeadLettered, DeletionNoted
from pubsub.client.core.cursor import Cursor
from pubsub.errors import DataLoss
from pubsub.protocol import Status, format_position

DELETED: Final = "an operator deleted the topic with the messages that this client had not received"
DELETED_AFTER_ALL: Final = "an operator deleted the topic; no message is known that this client had not received"
DELETED_UNKNOWN: Final = (
    "an operator deleted the topic; if it had messages{after} that this client had not received, they are lost"
)
"""Reasons of a DataLoss after a deletion."""


def report_loss(topic: str, first: str, last: str, reason: str, at: float) -> tuple[DeadLettered, DataLoss]:
    """Return the dead letter and the error of a loss; `at`: seconds since 1970."""
    error = DataLoss(topic, first, last, reason)
    return DeadLettered(topic, first, last, "", 0, 0, None, reason, 0, at), error


def report_deletion(
    topic: str, number: int, cursor: Cursor, status: Status, at: float
) -> tuple[DeadLettered | DeletionNoted, DataLoss]:
    """Return the change and the error of a deletion.

    Args:
        number: of the subscription.
        status: the answer. It names the lost records after the position of the last GET; the application may have
            taken some of them since.
        at: seconds since 1970.
    """
    first, last, position = status.first, status.message, cursor.position
    if status.number == number and first is not None and last is not None and position != last:
        if position is not None and position != cursor.acknowledged:
            first = position[0], position[1] + 1
        return report_loss(topic, format_position(first), format_position(last), DELETED, at)
    reason = DELETED_AFTER_ALL
    if status.number != number:
        reason = DELETED_UNKNOWN.format(after="" if position is None else f" after {format_position(position)}")
    return DeletionNoted(topic, reason), DataLoss(topic, "", "", reason)
