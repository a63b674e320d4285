"""All limits of the gateway on memory, numbers and times that a peer can use (docs/http.md, *Limits*)."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

BODY_BYTES_MAX: Final = 64 * MIB
"""Bytes of one request's body; beyond it 413."""

BODIES_BYTES_MAX: Final = 512 * MIB
"""Bytes of all request bodies in memory at the same time; beyond it 503."""

PARSED_BYTES_MAX: Final = 64 * 1024
"""Bytes of foreign JSON parsed on the event loop; larger JSON is parsed on a thread."""

BODY_SECONDS: Final = 30.0
"""Silence inside a body after which the request is answered 408."""

HEADER_BYTES_MAX: Final = 32 * 1024
"""Bytes of a request's line and headers; beyond it 431 and the connection is closed."""

KEEP_ALIVE_SECONDS: Final = 75
"""Lifetime of an idle connection."""

CONNECTIONS_MAX: Final = 4_096
"""Connections at the same time. A further one closes the longest idle one, or is answered 503 if none is idle."""

WAIT_SECONDS_MAX: Final = 60.0
"""Longest wait of a long poll."""

POLL_RECORDS: Final = 100
"""Default `max` of a long poll, in messages."""

POLL_RECORDS_MAX: Final = 10_000
"""Messages of one long poll."""

GROUP_RECORDS: Final = 1_000
"""Messages of one batch of a member of a consumer group."""

CONFIRM_SECONDS: Final = 60.0
"""Default time for the confirmation of such a batch. Then its messages come again."""

CONFIRM_SECONDS_MAX: Final = 3_600.0
"""Longest time for it."""

GROUP_CONFIRMED_MAX: Final = 1_000
"""Confirmed batches of one member that are remembered, for repeated confirmations."""

HEARTBEAT_SECONDS: Final = 15.0
"""Time between comments on a stream without events, which show that it is alive."""

STREAM_KEPT_BYTES: Final = 16 * MIB
"""Bytes of sent events that are kept for a returning reader: more than a connection can have in flight."""

STREAM_RECORDS: Final = 1_000
"""Events that a stream takes from its topic at a time."""

SUBSCRIBERS_MAX: Final = 10_000
"""Subscribers and webhooks of one gateway."""

WEBHOOKS_MAX: Final = 250
"""Webhooks of one gateway; each has a client that is always open."""

OPEN_CLIENTS_MAX: Final = 500
"""Open clients at the same time, including those of webhooks."""

IDLE_SECONDS: Final = 120.0
"""Time without use after which a client is closed."""

GROUP_BYTES_MAX: Final = 64 * MIB
"""Bytes of puts that share one commit; one request is always allowed."""

GROUP_RECORDS_MAX: Final = 1 << 20
"""Messages of one request, and of puts that share one commit."""

GROUPS_MAX: Final = 2
"""Commits of one topic in flight at the same time."""

LANES_MAX: Final = 10_000
"""Topics with puts in flight at the same time."""

REPORT_SECONDS: Final = 1.0
"""Shortest time between two reports of the cluster."""

REPORT_TOPICS_PER_SECOND: Final = 2_500
"""A report is reused for one second for each so many topics: one of ten thousand for four seconds."""

PEEK_RECORDS_MAX: Final = 100
"""Stored messages shown by one request."""

PREVIEW_BODY_BYTES: Final = 4096
"""Bytes of the body shown of a stored message."""

PREVIEW_KEY_BYTES: Final = 256
"""Bytes of the key shown of a stored message."""

PEEKS_MAX: Final = 4
"""Requests that read stored messages at the same time."""

WEBHOOK_URL_LENGTH_MAX: Final = 2_048
"""Characters of a webhook's URL."""

WEBHOOK_SECRETS_MAX: Final = 2
"""Secrets of a webhook: two while one replaces the other."""

WEBHOOK_WINDOW: Final = 1_000
"""Messages of a webhook that are taken from its topic and not delivered yet."""

WEBHOOK_CONCURRENCY: Final = 8
"""Deliveries of one webhook at the same time, each with a different key."""

WEBHOOK_SECONDS: Final = 15.0
"""Time for one delivery, from the name lookup to the status of the response."""

WEBHOOK_ATTEMPTS_MAX: Final = 12
"""Attempts at one delivery, about two and a half days with their pauses; then it is a dead letter."""

WEBHOOK_HEADERS_BYTES_MAX: Final = 8 * 1024
"""Bytes of a message's key and headers as HTTP headers of a delivery; further parts are left out."""

DEAD_LETTERS_BYTES_MAX: Final = 16 * MIB
"""Bytes of dead letters in one response; one is always allowed."""

DEAD_LETTERS_MAX: Final = 100_000
"""Dead letters of one webhook. At this number the webhook pauses until some are redriven or removed."""

LOSSES_MAX: Final = 10_000
"""Dead letters of one subscriber and topic, each a range of lost messages; older ones are deleted."""

METRICS_TOPICS_MAX: Final = 10_000
"""Topics with lines of their own in `/metrics`; a counter has the number of others."""

METRICS_SUBSCRIBERS_MAX: Final = 20_000
"""Subscribers with lines of their own in `/metrics`; a counter has the number of others."""
