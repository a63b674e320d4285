"""Errors of reliable HTTP requests (docs/http.md, *Reliable requests*)."""

from __future__ import annotations

from shlex import quote

from pubsub.base.urls import masked
from pubsub.errors import PubsubError, Unavailable


class RequestKept(Unavailable):
    """The time-out of a call ended before its HTTP request was settled. The request is kept, and continues.

    It continues while its directory is open, in this process or a later one. `url` is the complete URL; the text masks
    its password and its query, here and in the errors below.
    """

    exit_code = 5

    def __init__(self, request: str, url: str, seconds: float, reason: str, directory: str) -> None:
        super().__init__(request, url, seconds, reason)
        self.request, self.url, self.directory = request, url, directory
        self.args = request, url, seconds, reason, directory

    def __str__(self) -> str:
        there = f"--dir {quote(self.directory)}"
        why = self.reason or "no answer"
        said = f"{masked(self.url)}: no final answer within {self.seconds:g} s ({why}); the request is kept."
        return f"{said} Finish: pubsub http resume {there}; give up: pubsub http forget {quote(self.request)} {there}"


class RequestOver(PubsubError):
    """An HTTP request ended without success and is not sent again; `status` is that of its response, 0 for none."""

    sentence = "{url}: request {request} failed: {reason}"

    def __init__(self, request: str, url: str, reason: str, status: int = 0) -> None:
        self.request, self.url, self.reason, self.status = request, url, reason, status
        super().__init__(request, url, reason, status)

    def __str__(self) -> str:
        return self.sentence.format(**vars(self) | {"url": masked(self.url)})


class RequestRefused(RequestOver):
    """The response is final, or too large; a repeat would get the same."""

    exit_code = 26
    sentence = "{url} rejected request {request}: {reason}"


class RequestExpired(RequestOver):
    """Nothing settled the request within `expiry_seconds`. It may or may not have happened."""

    exit_code = 27
    sentence = "{url}: request {request} expired and may have happened; last error: {reason}"


class JobFailed(RequestOver):
    """The handler of a job failed in each of its attempts; its effects were rolled back."""

    exit_code = 28
    sentence = "{url}: job {request} failed: {reason}"
