"""One delivery: a signed POST, and what its answer means (Standard Webhooks 1.0, *Delivery*)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx2

from pubsub.gateway.limits import WEBHOOK_SECONDS
from pubsub.gateway.webhooks.signing import parse_secret, signature

ANSWER_BYTES_MAX = 64 * 1024
"""Bytes of a receiver's answer that are read; nothing in them counts."""


@dataclass(frozen=True)
class Outcome:
    """What became of a delivery.

    Attributes:
        delivered: the receiver has it; ended: it wants nothing more (410).
        reason: why not.
        retry_after: how long it asked to be left alone, in seconds.
    """

    delivered: bool = False
    ended: bool = False
    reason: str = ""
    retry_after: float = 0.0


def make_poster() -> httpx2.AsyncClient:
    """Makes requests for all webhooks; each has its own time-outs, so that none waits for another's receiver."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=30.0)
    return httpx2.AsyncClient(timeout=WEBHOOK_SECONDS, limits=limits, follow_redirects=False, trust_env=False)


async def post(
    poster: httpx2.AsyncClient,
    url: str,
    secrets: Sequence[str],
    message_id: str,
    topic: str,
    body: bytes,
    more: Mapping[str, str],
) -> Outcome:
    """POST one message, with more HTTP headers; never raises for what a receiver does."""
    timestamp = int(time.time())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature([parse_secret(one) for one in secrets], message_id, timestamp, body),
        "content-type": _kind(body),
        "pubsub-topic": topic,
        "user-agent": "pubsub-gateway",
        **more,
    }
    try:
        async with poster.stream("POST", url, content=body, headers=headers) as response:
            status, retry_after = response.status_code, response.headers.get("retry-after", "")
            size = 0
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    break
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return Outcome(reason=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    if 200 <= status < 300:
        return Outcome(delivered=True)
    reason = f"status {status}"
    return Outcome(ended=status == 410, reason=reason, retry_after=_seconds(retry_after, time.time()))


def _kind(body: bytes) -> str:
    """The media type of a message: what can be read as JSON is called so."""
    try:
        json.loads(body)
    except ValueError:
        return "application/octet-stream"
    return "application/json"


def _seconds(retry_after: str, wall: float) -> float:
    """What a Retry-After means, in seconds (RFC 9110, section 10.2.3)."""
    if retry_after.isdecimal():
        return float(retry_after[:9])
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - wall)
    except (ValueError, TypeError, OverflowError):
        return 0.0
