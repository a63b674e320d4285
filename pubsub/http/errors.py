"""What a reliable HTTP request ends with, where it has no success (docs/http.md, *Reliable requests*)."""

from __future__ import annotations

from shlex import quote

from pubsub.base.urls import masked
from pubsub.errors import PubsubError, Unavailable


class RequestKept(Unavailable):
    """An HTTP request that got no answer in time. It is kept, and goes on with the next opening of its directory.

    `url` is the whole URL; the text masks its password and its query, here and in the errors below.
    """

    exit_code = 5

    def __init__(self, request: str, url: str, seconds: float, reason: str, directory: str) -> None:
        super().__init__(request, url, seconds, reason)
        self.request, self.url, self.directory = request, url, directory
        self.args = request, url, seconds, reason, directory

    def __str__(self) -> str:
        there = f"--dir {quote(self.directory)}"
        why = self.reason or "no answer"
        said = f"{masked(self.url)}: not settled within {self.seconds:g} s ({why}); the request is kept."
        return f"{said} Finish: pubsub http resume {there}; give up: pubsub http forget {quote(self.request)} {there}"


class RequestOver(PubsubError):
    """An HTTP request ended without success, and is sent no more; `status` is that of its answer, 0 for none."""

    sentence = "{url}: request {request} came to nothing: {reason}"

    def __init__(self, request: str, url: str, reason: str, status: int = 0) -> None:
        self.request, self.url, self.reason, self.status = request, url, reason, status
        super().__init__(request, url, reason, status)

    def __str__(self) -> str:
        return self.sentence.format(**vars(self) | {"url": masked(self.url)})


class RequestRefused(RequestOver):
    """A final answer, or one that cannot be taken: a repeat would be answered so again."""

    exit_code = 26
    sentence = "{url} refused the request {request}: {reason}"


class RequestExpired(RequestOver):
    """Nothing settled it within `expiry_seconds`; it may or may not have happened."""

    exit_code = 27
    sentence = "{url}: request {request} expired; it may have happened; what was heard last: {reason}"


class JobFailed(RequestOver):
    """The handler of a job failed so often that the receiver gave it up; nothing of it happened there."""

    exit_code = 28
    sentence = "{url}: job {request} failed: {reason}"
