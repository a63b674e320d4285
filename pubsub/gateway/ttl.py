"""The time to live that a put's query asks for: `ttl`, in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pubsub.client.batch_contents import BatchContents
from pubsub.client.ttl import with_ttl
from pubsub.errors import CallerError, TooLarge
from pubsub.gateway.problems import Problem
from pubsub.protocol import decode_headers, encode_headers


class TimeToLive(NamedTuple):
    """The time to live of the messages of a put.

    Attributes:
        seconds: None: they do not expire.
        text: the query's words, by which a repeated request is recognised; "" for none.
    """

    seconds: float | None
    text: str

    def added(self, contents: BatchContents) -> BatchContents:
        """Return messages with this time to live.

        Raises:
            Problem: the time is not allowed, or a message has too many headers or one already.
        """
        if self.seconds is None:
            return contents
        blocks = contents.headers or [b""] * len(contents.bodies)
        try:
            new = {block: encode_headers(with_ttl(decode_headers(block), self.seconds)) for block in set(blocks)}
        except (CallerError, TooLarge) as error:
            raise Problem("bad-request", f"{str(error)[:1].upper()}{str(error)[1:]}; nothing was put.") from None
        return contents._replace(headers=[new[block] for block in blocks])


def read_ttl(query: Mapping[str, str]) -> TimeToLive:
    """Return the time to live that a query asks for.

    Raises:
        Problem: the parameter is no number.
    """
    text = query.get("ttl")
    if text is None:
        return TimeToLive(None, "")
    try:
        return TimeToLive(float(text), f" ttl {text}")
    except ValueError:
        raise Problem("bad-request", "The query cannot be read: ttl is a number of seconds; nothing was put.") from None
