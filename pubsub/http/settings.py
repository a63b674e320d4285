"""Settings of reliable requests; `docs/http.md` explains them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pubsub.errors import SettingRefused


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Settings of a sender and of a receiver.

    Attributes:
        expiry_seconds: time after which an unsettled request is given up.
        tombstone_seconds: time for which a receiver knows a key and a sender the result of a request; longer than
            `expiry_seconds` of every sender.
        try_seconds: time-out of one HTTP request.
        backoff_seconds, backoff_seconds_max: pause after the first try, and the longest pause.
        requests_at_once, requests_per_host: HTTP requests in flight, in total and for one host.
        outbox_requests_max, outbox_bytes_max: unsettled requests, and the bytes of their bodies.
        inbox_requests_max, inbox_bytes_max: unhandled requests, and the bytes of their bodies.
        tombstones_max: keys that a receiver knows.
        body_bytes_max: of one request; response_bytes_max: of one response, from a handler or a receiver.
        handlers_at_once: handlers that run at the same time.
        handler_attempts: failures after which a handler is not called again.
    """

    expiry_seconds: float = 7 * 86_400.0
    tombstone_seconds: float = 14 * 86_400.0
    try_seconds: float = 60.0
    backoff_seconds: float = 0.5
    backoff_seconds_max: float = 60.0
    requests_at_once: int = 64
    requests_per_host: int = 16
    outbox_requests_max: int = 10_000
    outbox_bytes_max: int = 1 << 30
    inbox_requests_max: int = 10_000
    inbox_bytes_max: int = 1 << 30
    tombstones_max: int = 1_000_000
    body_bytes_max: int = 16 << 20
    response_bytes_max: int = 16 << 20
    handlers_at_once: int = 8
    handler_attempts: int = 10

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            kinds = (int,) if one.type == "int" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 1e12:
                raise SettingRefused("http", one.name, value, f"a number above 0 ({one.type})")
        if self.tombstone_seconds <= self.expiry_seconds:
            allowed = f"more than expiry_seconds = {self.expiry_seconds:g}"
            raise SettingRefused("http", "tombstone_seconds", self.tombstone_seconds, allowed)
