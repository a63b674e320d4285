"""Every limit and time of a Messenger, named in one place (docs/architecture.md, *Limits*)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SEEN_RANGES_MAX: Final = 4096
"""Ranges of message IDs remembered per peer; with more gaps than that, IDs below the lowest gap are refused."""

SEEN_TOTAL_MAX: Final = 1 << 20
"""Ranges remembered of all peers of a Messenger; beyond it a peer keeps SEEN_SHARE of them."""

SEEN_SHARE: Final = 16

SEEN_JUMP_MAX: Final = 1 << 24
"""A message ID that is further above the highest one seen of its peer is refused."""

SEEN_INSTANCES_MAX: Final = 4
"""Messengers that were heard one after the other on one link and whose message IDs are still remembered."""

ACK_RANGES_MAX: Final = 256
"""Ranges in one ACK; with so many it goes out at once."""


@dataclass(frozen=True, kw_only=True)
class MessengerLimits:
    """What a Messenger holds at most, and how patient it is.

    Attributes:
        messages_max: messages queued, or pending until they are answered or acknowledged; one more raises `TooLarge`.
        bytes_max: bytes of these messages.
        message_bytes_max: bytes of one message.
        callbacks_max: registered callbacks.
        peers_max: peers behind the endpoints that this Messenger opened; a newcomer beyond it is refused and counted.
        idle_seconds: a peer behind an endpoint that was silent for so long is forgotten, with what is pending to it.
        retry_seconds: before the first retry of a pending message; it doubles with each one …
        retry_seconds_max: … up to this. Each is moved at random by up to a quarter.
        ack_seconds: for so long acknowledgements are gathered.
        grace_seconds: after a caller drove the sockets itself, for so long the I/O thread leaves them to the next one.
        heartbeat_seconds: between pings of a connection over the network; one silent for three is made anew.
        drain_messages: taken from one socket before the others get their turn.
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
