"""Every named limit of the gateway: what a peer can make it hold, and for how long (docs/http.md, *Limits*)."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

BODY_BYTES_MAX: Final = 64 * MIB
"""Bytes of one request's body; beyond it 413."""

BODIES_BYTES_MAX: Final = 512 * MIB
"""Bytes of all requests' bodies that are held at the same time; beyond it 503."""

PARSED_BYTES_MAX: Final = 64 * 1024
"""Bytes of JSON from elsewhere that are parsed on the event loop, which waits for it; what is more goes to a thread."""

BODY_SECONDS: Final = 30.0
"""Silence in the midst of a body after which the request is answered 408."""

HEADER_BYTES_MAX: Final = 32 * 1024
"""Bytes of a request's line and headers; beyond it 431 and the connection is closed."""

KEEP_ALIVE_SECONDS: Final = 75
"""An idle connection is closed after so long."""

CONNECTIONS_MAX: Final = 4_096
"""Connections at the same time; one more is closed at once."""

WAIT_SECONDS_MAX: Final = 60.0
"""The longest a long poll may wait."""

POLL_RECORDS: Final = 100
"""Messages of a long poll that names no `max`."""

POLL_RECORDS_MAX: Final = 10_000
"""Messages of one long poll at most."""

HEARTBEAT_SECONDS: Final = 15.0
"""A stream of events without events says that it is alive so often."""

STREAM_KEPT_BYTES: Final = 16 * MIB
"""Bytes of events that are sent and kept, for a reader that comes back: more than a connection can hold on its way."""

STREAM_RECORDS: Final = 1_000
"""Events that a stream takes from its topic at a time."""

SUBSCRIBERS_MAX: Final = 10_000
"""Subscribers and webhooks that one gateway keeps."""

WEBHOOKS_MAX: Final = 250
"""Webhooks that one gateway keeps; each has a client that is always open."""

OPEN_CLIENTS_MAX: Final = 500
"""Clients that are open at the same time, webhooks' included."""

IDLE_SECONDS: Final = 120.0
"""A client that nobody uses is closed after so long."""

GROUP_BYTES_MAX: Final = 64 * MIB
"""Bytes of puts that share one commit; one request is always allowed."""

GROUP_RECORDS_MAX: Final = 1 << 20
"""Messages of one request, and of puts that share one commit."""

GROUPS_MAX: Final = 2
"""Commits of one topic that are on their way at the same time."""

LANES_MAX: Final = 10_000
"""Topics that are put to at the same time."""

REPORT_SECONDS: Final = 1.0
"""A report on the cluster is asked for at most so often."""

REPORT_TOPICS_PER_SECOND: Final = 2_500
"""A report of so many topics is good for one second: of ten thousand, for four."""

PEEK_RECORDS_MAX: Final = 100
"""Messages that are looked at in one request."""

PREVIEW_BODY_BYTES: Final = 4096
"""Of a message that is looked at, so many bytes of its body are shown."""

PREVIEW_KEY_BYTES: Final = 256
"""And so many of its key."""

PEEKS_MAX: Final = 4
"""Requests that look at messages at the same time."""

WEBHOOK_URL_LENGTH_MAX: Final = 2_048
"""Characters of a webhook's URL."""

WEBHOOK_SECRETS_MAX: Final = 2
"""Secrets of a webhook: two while one replaces the other."""

WEBHOOK_WINDOW: Final = 1_000
"""Messages of a webhook that are taken from its topic and not delivered yet."""

WEBHOOK_CONCURRENCY: Final = 8
"""Deliveries of one webhook at the same time, each of another key."""

WEBHOOK_SECONDS: Final = 15.0
"""One delivery may take so long in all, from the look-up of its receiver's name to its answer's status."""

WEBHOOK_ATTEMPTS_MAX: Final = 12
"""Attempts at one delivery, which with their back-offs take about three days; then it is a dead letter."""

WEBHOOK_HEADERS_BYTES_MAX: Final = 8 * 1024
"""Bytes of a message's key and headers as HTTP headers of a delivery, beyond which they are left out of it."""

DEAD_LETTERS_BYTES_MAX: Final = 16 * MIB
"""Bytes of dead letters in one answer; one is always allowed."""

DEAD_LETTERS_MAX: Final = 100_000
"""Dead letters of one webhook; where there are so many it waits until some are redriven or removed."""

LOSSES_MAX: Final = 10_000
"""Dead letters of one subscriber and topic: ranges of messages that are lost. The oldest beyond are forgotten."""

METRICS_TOPICS_MAX: Final = 10_000
"""Topics that have lines of their own in `/metrics`; what else there is, is counted there."""

METRICS_SUBSCRIBERS_MAX: Final = 20_000
"""Subscribers of topics that have lines of their own in `/metrics`; what else there is, is counted there."""
