"""`pubsub service call`: many calls, several at a time, and their output."""

from __future__ import annotations

import base64
import sys
from collections import deque
from concurrent.futures import Future
from time import monotonic
from typing import Final

import typer

from pubsub.console import complain, print_json
from pubsub.errors import CallerError, PubsubError
from pubsub.services.calling import REPLY_BYTES_MAX, Reply
from pubsub.services.client import ServiceClient

COMPLAINTS_MAX: Final = 10
"""Failed calls that are reported one by one. The rest is reported as a number."""


def read_request() -> bytes:
    """Read the request from standard input, at most one byte more than is allowed.

    Raises:
        CallerError: standard input cannot be read.
    """
    try:
        return sys.stdin.buffer.read(REPLY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise CallerError(f"standard input cannot be read: {getattr(error, 'strerror', None) or error}") from None


class Output:
    """Writes replies to standard output.

    Args:
        as_json: write each reply as one line of JSON.
        alone: there is one reply only, which is written unchanged.
    """

    def __init__(self, as_json: bool, *, alone: bool) -> None:
        self._as_json, self._alone = as_json, alone

    def write(self, service: str, reply: Reply, seconds: float) -> None:
        body = reply.body
        if self._as_json:
            try:
                shown = {"reply": body.decode()}
            except UnicodeDecodeError:
                shown = {"reply_base64": base64.b64encode(body).decode()}
            print_json({"service": service, **shown, "seconds": round(seconds, 6)})
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(body)
        if not self._alone and not body.endswith(b"\n"):
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


def call_many(client: ServiceClient, service: str, request: bytes, count: int, parallel: int, output: Output) -> None:
    """Call a service `count` times, and write the replies in the order of the calls.

    Raises:
        typer.Exit: some calls got no reply; it has the exit code of the first error.
        PubsubError: the only call got no reply.
    """
    under_way: deque[tuple[float, Future[Reply]]] = deque()
    errors: list[PubsubError] = []
    made = 0
    while made < count or under_way:
        while made < count and len(under_way) < parallel:
            under_way.append((monotonic(), client.submit(service, request)))
            made += 1
        begun, future = under_way.popleft()
        try:
            output.write(service, future.result(), monotonic() - begun)
        except PubsubError as error:
            if (
                count == 1 or future.exception() is not error
            ):  # An error of the output, such as a closed pipe, is not an error of a call.
                raise
            errors.append(error)
            if len(errors) <= COMPLAINTS_MAX:
                complain(str(error))
    if errors:
        complain(f"{len(errors):,} of {count:,} calls got no reply")
        raise typer.Exit(errors[0].exit_code)
