"""All limits and times of a Messenger (docs/explanation/cores-and-shells.md, A9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SEEN_RANGES_MAX: Final = 4096
"""Ranges of message IDs remembered for each peer; with more gaps, IDs below the lowest gap are refused."""

SEEN_TOTAL_MAX: Final = 1 << 20
"""Ranges remembered for all peers of a Messenger; beyond that a peer keeps at most SEEN_SHARE."""

SEEN_SHARE: Final = 16

SEEN_JUMP_MAX: Final = 1 << 24
"""A message ID that is further above the highest one seen of its peer is refused."""

SEEN_INSTANCES_MAX: Final = 4
"""Number of earlier Messengers on one link for which message IDs are still remembered."""

ACK_RANGES_MAX: Final = 256
"""Ranges in one ACK; a full ACK is sent at once."""


@dataclass(frozen=True, kw_only=True)
class MessengerLimits:
    """Limits and times of a Messenger.

    Attributes:
        messages_max: messages queued, or pending until they are answered or acknowledged; one more raises `TooLarge`.
        bytes_max: bytes of these messages.
        message_bytes_max: bytes of one message.
        callbacks_max: registered callbacks.
        peers_max: peers behind the endpoints that this Messenger opened; messages of further peers are refused and
            counted.
        idle_seconds: silence after which a peer behind an endpoint is forgotten, with its pending messages.
        retry_seconds: time before the first retry of a pending message; it doubles with each retry. Each delay is
            changed at random by up to a quarter.
        retry_seconds_max: upper limit of that time.
        ack_seconds: time for which acknowledgements are collected before they are sent.
        grace_seconds: time for which the I/O thread leaves the sockets alone after a caller drove them.
        heartbeat_seconds: interval of pings on a network connection; after three intervals of silence it is made
            again.
        drain_messages: messages taken from one socket before the next socket has its turn.
    """

    messages_max: int = 16_384
    bytes_max: int = 512 * 1024 * 1024
    message_bytes_max: int = 32 * 1024 * 1024
    callbacks_max: int = 65_536
    peers_max: int = 65_536
    idle_seconds: float = 600.0
    retry_seconds: float = 0.25
    retry_seconds_max: float = 5.0
    ack_seconds: float = 0.02
    grace_seconds: float = 0.02
    heartbeat_seconds: float = 1.0
    drain_messages: int = 256
