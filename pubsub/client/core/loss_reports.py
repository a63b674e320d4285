"""The durable change and the error by which an application learns of a loss, or of the deletion of a topic.

A loss names its first and last record, and is kept as a dead letter. After the deletion of a topic the server knows
what a subscriber had not acknowledged, unless there were several holders. If nothing of that is lost, or if the server
does not know it, no record is named, and there is no dead letter.

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
DELETED_UNKNOWN: Final = "an operator deleted the topic; the number of lost messages{after} is not known"
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
            taken some of them since, or records of another holder.
        at: seconds since 1970.
    """
    first, last, position = status.first, status.message, cursor.position
    known = status.number == number
    if position is not None and position != cursor.acknowledged:
        known = known and first is not None and last is not None and first <= position <= last
        first = position[0], position[1] + 1
    if known and first is not None and last is not None and first <= last:
        return report_loss(topic, format_position(first), format_position(last), DELETED, at)
    reason = DELETED_AFTER_ALL
    if not known:
        reason = DELETED_UNKNOWN.format(after="" if position is None else f" after {format_position(position)}")
    return DeletionNoted(topic, reason), DataLoss(topic, "", "", reason)
