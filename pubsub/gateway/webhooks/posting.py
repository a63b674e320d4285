"""One delivery: a signed POST, and the meaning of its response (Standard Webhooks 1.0, *Delivery*)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import httpx2

from pubsub.base.urls import mask_logged_urls
from pubsub.gateway.json_check import is_json
from pubsub.gateway.limits import PARSED_BYTES_MAX, WEBHOOK_SECONDS
from pubsub.gateway.webhooks.signing import parse_secret, signature
from pubsub.web.answers import answer_pieces, reason_of
from pubsub.web.backoff import retry_after

ANSWER_BYTES_MAX = 64 * 1024
"""Bytes of a receiver's response that are read; their content is ignored."""

_LOOKING: Final = ThreadPoolExecutor(1, "webhook-json")
"""Checks whether large bodies are JSON, one at a time, so that threads for disks stay free."""


@dataclass(frozen=True)
class Outcome:
    """The result of a delivery.

    Attributes:
        delivered: the receiver accepted the message; ended: it wants no more (410).
        reason: of a failure.
        retry_after: seconds that the receiver asks to wait.
    """

    delivered: bool = False
    ended: bool = False
    reason: str = ""
    retry_after: float = 0.0


def make_http_client() -> httpx2.AsyncClient:
    """Return the HTTP client of all webhooks. Time-outs are per webhook, so none waits for another's receiver."""
    mask_logged_urls()
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=30.0)
    return httpx2.AsyncClient(timeout=WEBHOOK_SECONDS, limits=limits, follow_redirects=False, trust_env=False)


async def post(
    http_client: httpx2.AsyncClient,
    url: str,
    secrets: Sequence[str],
    message_id: str,
    topic: str,
    body: bytes,
    more: Mapping[str, str],
) -> Outcome:
    """POST one message with further HTTP headers. A receiver's behaviour never raises.

    The status counts if it arrives within WEBHOOK_SECONDS of the start, even if the body of the response fails. Name
    lookup, connection, request and response together end after that time.
    """
    timestamp = int(time.time())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature([parse_secret(one) for one in secrets], message_id, timestamp, body),
        "content-type": await _kind(body),
        "pubsub-topic": topic,
        "user-agent": "pubsub-gateway",
        **more,
    }
    answer: httpx2.Response | None = None
    reason = ""
    try:
        async with asyncio.timeout(WEBHOOK_SECONDS):
            async with http_client.stream("POST", url, content=body, headers=headers) as answer:
                await _read(answer)
    except TimeoutError:
        reason = f"no answer within {WEBHOOK_SECONDS:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        reason = reason_of(error, url)
    if answer is None:
        return Outcome(reason=reason)
    status = answer.status_code
    if 200 <= status < 300:
        return Outcome(delivered=True)
    asked = answer.headers.get("retry-after", "")
    asked = asked[:9] if asked.isdecimal() else asked  # Nine digits are already more than the limit of a day.
    seconds = retry_after(asked, answer.headers.get("date", ""), time.time())
    return Outcome(ended=status == 410, reason=f"status {status}", retry_after=seconds)


async def _read(answer: httpx2.Response) -> None:
    """Read a response's body, so that its connection can be reused; a larger one closes the connection."""
    size = 0
    async for piece in answer_pieces(answer):
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            return


async def _kind(body: bytes) -> str:
    """Return the media type of a message: JSON if it parses as JSON."""
    if len(body) <= PARSED_BYTES_MAX:
        found = is_json(body)
    else:
        found = await asyncio.get_running_loop().run_in_executor(_LOOKING, is_json, body)
    return "application/json" if found else "application/octet-stream"
