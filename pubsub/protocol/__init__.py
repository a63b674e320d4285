"""The service's messages, and their encoding."""

from pubsub.protocol.batch import RECORD_BYTES_MAX, batch_ends, batch_size, check_batch, decode_batch, encode_batch
from pubsub.protocol.bodies import join_stages, join_topics, split_stages, split_topics
from pubsub.protocol.codec import decode, encode, request_route
from pubsub.protocol.headers import decode_headers, encode_headers
from pubsub.protocol.messages import (
    RETRY,
    Configure,
    Get,
    Heartbeat,
    Message,
    Operate,
    Outcome,
    Periodic,
    Put,
    Read,
    Report,
    Settings,
    Status,
    Subscribe,
    Unsubscribe,
)
from pubsub.protocol.names import Position, check_id, check_new_topic, check_topic, format_position, parse_position
from pubsub.protocol.records import Records, RecordsBuilder, Run
from pubsub.protocol.sinks import Publish, Stage
from pubsub.protocol.transfers import Merge, Owners, Transfer

__all__ = [
    "RECORD_BYTES_MAX",
    "RETRY",
    "Configure",
    "Get",
    "Heartbeat",
    "Merge",
    "Message",
    "Operate",
    "Outcome",
    "Owners",
    "Periodic",
    "Position",
    "Publish",
    "Put",
    "Read",
    "Records",
    "RecordsBuilder",
    "Report",
    "Run",
    "Settings",
    "Stage",
    "Status",
    "Subscribe",
    "Transfer",
    "Unsubscribe",
    "batch_ends",
    "batch_size",
    "check_batch",
    "check_id",
    "check_new_topic",
    "check_topic",
    "decode",
    "decode_batch",
    "decode_headers",
    "encode",
    "encode_batch",
    "encode_headers",
    "format_position",
    "join_stages",
    "join_topics",
    "parse_position",
    "request_route",
    "split_stages",
    "split_topics",
]
