"""The service's messages and how they become bytes."""

from pubsub.protocol.batch import batch_ends, batch_size, check_batch, decode_batch, encode_batch
from pubsub.protocol.codec import decode, encode, join_topics, request_route, split_topics
from pubsub.protocol.messages import (
    RETRY,
    Get,
    Heartbeat,
    Merge,
    Message,
    Outcome,
    Periodic,
    Put,
    Report,
    Status,
    Subscribe,
    Transfer,
    Unsubscribe,
    Whole,
)
from pubsub.protocol.names import Position, check_id, check_topic, format_position, parse_position
from pubsub.protocol.records import Records, RecordsBuilder, Run

__all__ = [
    "RETRY",
    "Get",
    "Heartbeat",
    "Merge",
    "Message",
    "Outcome",
    "Periodic",
    "Position",
    "Put",
    "Records",
    "RecordsBuilder",
    "Report",
    "Run",
    "Status",
    "Subscribe",
    "Transfer",
    "Unsubscribe",
    "Whole",
    "batch_ends",
    "batch_size",
    "check_batch",
    "check_id",
    "check_topic",
    "decode",
    "decode_batch",
    "encode",
    "encode_batch",
    "format_position",
    "join_topics",
    "parse_position",
    "request_route",
    "split_topics",
]
