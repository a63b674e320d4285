"""h11's parser with limits, and stricter where a forwarding server and this one could read one request differently.

An offer of an upgrade (`Upgrade: h2c` of Java's HttpClient and `curl --http2`) is ignored, as RFC 9110, 7.8, allows:
the body is read like any other. httptools loses such a body (MagicStack/httptools#124, Kludex/uvicorn#2722).
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import h11
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer

_SEVERAL_LENGTHS: Final = re.compile(rb"\ncontent-length:(?:[^\n]*,|.*\ncontent-length:)", re.IGNORECASE | re.DOTALL)
_ODD_LINE: Final = re.compile(rb"(?<!\r)\n|\n[ \t]|\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WHOLE_URL: Final = re.compile(rb"https?://.+", re.IGNORECASE)

REASON_LENGTH_MAX: Final = 200
"""Characters of the parser's message in a response; the message may contain bytes of the peer."""


class _Chunks(ChunkedReader):
    """Reads chunks. Rejects a line that another reader would take for two (RFC 9112, 7.1.1), and too many trailers.

    Args:
        bytes_max: of the line before a chunk, and of trailers; fields_max: number of trailers.
    """

    def __init__(self, bytes_max: int, fields_max: int) -> None:
        super().__init__()
        self._bytes_max, self._fields_max = bytes_max, fields_max

    def __call__(self, buf: ReceiveBuffer) -> h11.Data | h11.EndOfMessage | None:
        if not self._reading_trailer and not self._bytes_in_chunk:
            self._check_line(buf._data)
        if not self._reading_trailer:
            return super().__call__(buf)
        before = bytes(buf)
        event = super().__call__(buf)
        if event is None:
            return None
        trailers = before[: len(before) - len(buf)]
        if len(trailers) > self._bytes_max or trailers.count(b"\n") > self._fields_max + 1:
            raise h11.LocalProtocolError("too many trailers", 431)
        if _ODD_LINE.search(trailers):
            raise h11.LocalProtocolError("a trailer line does not end with CR LF")
        return event

    def _check_line(self, data: bytearray) -> None:
        """Check the line with a chunk's size, also while it is incomplete."""
        begin = len(self._bytes_to_discard)
        end = data.find(b"\r\n", begin)
        if end < 0:
            end = len(data) - data.endswith(b"\r")
        if end - begin > self._bytes_max:
            raise h11.LocalProtocolError("a chunk's extension is too large", 431)
        if begin < end and _CONTROL.search(data, begin, end):
            raise h11.LocalProtocolError("a control character in a chunk's size or extension")


class Parser(h11.Connection):
    """Parser of one connection.

    Args:
        bytes_max: of a request's line and header fields; fields_max: number of header fields.

    Attributes:
        status: of the response to a rejected request: 400, 431, 501 or 505.
        reason: of the rejection, in one sentence.
    """

    def __init__(self, bytes_max: int, fields_max: int) -> None:
        super().__init__(h11.SERVER, bytes_max)
        self._bytes_max, self._fields_max = bytes_max, fields_max
        self.status, self.reason = 400, "The request is not HTTP/1.1."

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            h11.RemoteProtocolError: the request is rejected; `status` and `reason` say why.
        """
        beginning = self.their_state is h11.IDLE
        # Empty lines after a request are skipped too: while bytes wait, nothing is read and a disconnect is missed.
        before = self._skipped() if beginning or self.their_state is h11.DONE else b""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.status = error.error_status_hint
            self.reason = (
                self._too_large()
                if self.status == 431
                else f"The request is not HTTP/1.1: {str(error)[:REASON_LENGTH_MAX]}."
            )
            raise
        if beginning and isinstance(event, h11.Request):
            return self._checked(event, before[: len(before) - len(self.trailing_data[0])])
        return event

    def send(self, event: Any) -> Any:
        """Return the bytes of an event, None if the connection is over.

        Raises:
            h11.LocalProtocolError: the event is not allowed in this state.
        """
        if isinstance(event, h11.Response) and self.they_are_waiting_for_100_continue:
            # RFC 9110, 10.1.1: the peer may omit the body now, and its next bytes would be read as the body.
            headers = [field for field in event.headers if field[0] != b"connection"]
            event = h11.Response(
                status_code=event.status_code, headers=[*headers, (b"connection", b"close")], reason=event.reason
            )
        return super().send(event)

    def _skipped(self) -> bytes:
        """Return the unread bytes without leading empty lines; some clients send one after a body (RFC 9112, 2.2)."""
        waiting = self.trailing_data[0]
        empty = len(waiting) - len(waiting.lstrip(b"\r\n"))
        if empty:
            self._receive_buffer.maybe_extract_at_most(empty)
        return waiting[empty:]

    def _checked(self, request: h11.Request, head: bytes) -> h11.Request:
        if len(head) > self._bytes_max or len(request.headers) > self._fields_max:
            raise self._refused(431, self._too_large())
        if request.http_version not in {b"1.0", b"1.1"}:
            raise self._refused(505, "The HTTP version is not supported; use HTTP/1.1.")
        if request.method == b"CONNECT":  # A response of 200 would begin a tunnel.
            raise self._refused(501, "CONNECT is not supported; this server is not an HTTP proxy.")
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version != b"1.1"):
            # RFC 9112, 6.1: a server that forwarded the request may have used the other field.
            raise self._refused(400, "Send either Content-Length or, with HTTP/1.1, Transfer-Encoding.")
        if b"content-length" in names and _SEVERAL_LENGTHS.search(head):
            # h11 accepts several equal ones.
            raise self._refused(400, "Content-Length is given more than once; send it once.")
        if _ODD_LINE.search(head):
            # h11 accepts such lines; a server that forwarded the request may have read other headers.
            raise self._refused(
                400, "A header is malformed: end lines with CR LF, without control characters or folding."
            )
        if type(self._reader) is ChunkedReader:
            self._reader = _Chunks(self._bytes_max, self._fields_max)
        if request.target[:1] == b"/" or (request.target == b"*" and request.method == b"OPTIONS"):
            return request
        if _WHOLE_URL.fullmatch(request.target) is None:
            raise self._refused(400, "The request target is neither a path nor a URL.")
        return self._with_path(request)

    def _with_path(self, request: h11.Request) -> h11.Request:
        """Replace a complete URL by its path and host (RFC 9112, 3.2.2); clients of proxies send complete URLs."""
        try:
            parts = urlsplit(request.target.decode("ascii"))
        except ValueError:
            raise self._refused(400, "The request target is not a valid URL.") from None
        host = parts.netloc.rpartition("@")[2].encode("ascii")
        if not host:  # RFC 9110, 4.2.1: an http URL has a host.
            raise self._refused(400, "The request target is a URL without a host.")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # RFC 9112, 3.2.2: the host of the URL replaces the field Host.
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        return h11.Request(
            method=request.method,
            headers=[(b"host", host), *headers],
            target=target,
            http_version=request.http_version,
        )

    def _too_large(self) -> str:
        limits = f"{self._bytes_max // 1024} KiB in {self._fields_max} fields"
        return f"The request's headers are too large; the limit is {limits}."

    def _refused(self, status: int, reason: str) -> h11.RemoteProtocolError:
        self.status, self.reason = status, reason
        return h11.RemoteProtocolError(reason, status)
