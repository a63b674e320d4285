"""Every limit of the protocol, in one place (docs/explanation/cores-and-shells.md, A9).

These limits bound the memory and disk that a peer can make this process use, and each is checked before anything is
allocated. Limits for operators (backlog, windows, time-outs) are settings, in `pubsub.config`.
"""

from __future__ import annotations

from typing import Final

NAME_LENGTH_MAX: Final = 64
"""Characters of a client, server or proxy ID."""

TOPIC_LENGTH_MAX: Final = 80
"""Bytes of a topic."""

START_RECORDS_MAX: Final = 10_000
"""Records before the end at which a subscription or a read may begin (`last:N`)."""

HEADER_LENGTH_MAX: Final = 16 * 1024
"""Bytes of a message's header, including the empty line."""

HEADER_FIELDS_MAX: Final = 40
"""Fields of a header."""

NUMBER_MAX: Final = 2**63 - 1
"""Largest counter, offset, subscription number, timestamp or message ID."""

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a message's body on the wire."""

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of one put batch including its table of ends; the largest record is a little smaller."""

BATCH_RECORDS_MAX: Final = 65_536
"""Records in one put batch or one answer."""

TRAIN_ROWS_MAX: Final = 64
"""Rows of a chain in one PUT, a train."""

TRAIN_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a train's body: its batches and their table."""

DELAY_SECONDS_MAX: Final = 90 * 24 * 3600
"""Seconds from the put of a delayed message to its due time."""

DELAYED_ROWS_MAX: Final = 1_000_000
"""Batches of one topic that wait for their due time. Beyond it, delayed puts are answered `full`."""

DELAYED_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The same limit for their bytes."""

ORIGIN_BYTES_MAX: Final = 96
"""Bytes that a batch grows by when it is due: its publisher and counter (`protocol.batch`)."""

MESSAGE_HEADERS_MAX: Final = 16
"""Headers of one message."""

MESSAGE_HEADER_NAME_LENGTH_MAX: Final = 64
"""Characters of a message header's name."""

MESSAGE_HEADERS_BYTES_MAX: Final = 8 * 1024
"""Bytes of one message's headers: names and values, and 3 bytes for each header."""

SERVICE_PARTS_MAX: Final = 256
"""Workers that may share the calls of one service by key."""

CALLS_MAX: Final = 10_000
"""Calls that a client keeps, waiting or answered. Beyond it the oldest call with a delivered reply is forgotten."""

CALL_REPLIES_BYTES_MAX: Final = 256 * 1024 * 1024
"""The same limit for the bytes of replies."""

PROXIES_MAX: Final = 64
"""Proxies that a client or a server may name."""

STORE_PUBLISHERS_MAX: Final = 2_000_000
"""Publishers in one store, of all its topics together. A put of another publisher is answered `full`."""

OFFSET_BITS: Final = 40
"""Bits of an offset within one log; the store's key is log number << OFFSET_BITS | offset."""

OFFSET_MAX: Final = (1 << OFFSET_BITS) - 1
"""One above the highest offset of a log. When a log is full, puts are answered `full`."""

GROUPS_MAX: Final = 100
"""Consumer groups of one topic that have not ended."""

GROUP_NAMES_MAX: Final = 1_000
"""Names of groups of one topic, also of ended groups: the number of each is kept permanently."""

PARTS_MAX: Final = 4_096
"""Parts of a keyed group."""

MEMBERS_MAX: Final = 4_096
"""Members of one group that are remembered. Beyond it a further member is answered `full`."""

CLAIMED_RECORDS_MAX: Final = 10_000
"""Records that one member of a group holds as claimed; the same limit for those offered to it."""

CLAIMED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The same limits for bytes."""

CLAIMED_RANGES_MAX: Final = 256
"""The same limits for ranges."""

WORK_LINES_MAX: Final = 1_024
"""Lines in the body of a WORK."""

HOLDING_LINES_MAX: Final = 4_096
"""Lines in front of the records in an answer to WORK."""

ATTEMPTS_MAX: Final = 1_000
"""Attempts of one record that a group may allow."""

DEAD_REASON_LENGTH_MAX: Final = 300
"""Characters of the reason why a record is a dead letter, percent-encoded."""

ATTEMPT_ERROR_LENGTH_MAX: Final = 200
"""Characters of the error of a failed attempt in a group, percent-encoded; a longer one is cut."""

LOST_SECONDS_MIN: Final = 1
"""Least time after which a group gives up what a silent member has claimed."""
