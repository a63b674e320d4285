"""h11's parser as this server uses it: stricter where two readers of one request could differ, and bounded.

An offer of an upgrade (`Upgrade: h2c`, of Java's HttpClient and `curl --http2`) is ignored, as RFC 9110, 7.8, allows:
the body is read as that of any request. httptools loses it (MagicStack/httptools#124, Kludex/uvicorn#2722).
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
"""Characters of the parser's own words in an answer: they may hold what the peer has sent."""


class _Chunks(ChunkedReader):
    """Reads chunks, and refuses a line that another reader takes for two (RFC 9112, 7.1.1), and trailers that are many.

    Args:
        bytes_max: of the line before a chunk, and of trailers; fields_max: of trailers.
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
            raise h11.LocalProtocolError("a trailer whose lines do not end with CR LF")
        return event

    def _check_line(self, data: bytearray) -> None:
        """The line that says a chunk's size, whole or not."""
        begin = len(self._bytes_to_discard)
        end = data.find(b"\r\n", begin)
        if end < 0:
            end = len(data) - data.endswith(b"\r")
        if end - begin > self._bytes_max:
            raise h11.LocalProtocolError("a chunk's extension is too large", 431)
        if begin < end and _CONTROL.search(data, begin, end):
            raise h11.LocalProtocolError("a control character in a chunk's size or extension")


class Parser(h11.Connection):
    """A connection's parser.

    Args:
        bytes_max: of a request's line and header fields; fields_max: of their number.

    Attributes:
        status: of the answer to the request that is refused: 400, 431, 501 or 505.
        reason: why it is, in one sentence.
    """

    def __init__(self, bytes_max: int, fields_max: int) -> None:
        super().__init__(h11.SERVER, bytes_max)
        self._bytes_max, self._fields_max = bytes_max, fields_max
        self.status, self.reason = 400, "The request is not HTTP/1.1."

    def next_event(self) -> Any:
        """The next event.

        Raises:
            h11.RemoteProtocolError: the request is refused; `status` and `reason` say how.
        """
        beginning = self.their_state is h11.IDLE
        # Behind a request too: where more waits nothing is read, and that the peer is gone is not noticed.
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
        """The bytes of an event; None: the connection is over.

        Raises:
            h11.LocalProtocolError: this event is not to be sent now.
        """
        if isinstance(event, h11.Response) and self.they_are_waiting_for_100_continue:
            # RFC 9110, 10.1.1: the peer may leave the body out then, and what follows would be taken for it.
            headers = [field for field in event.headers if field[0] != b"connection"]
            event = h11.Response(
                status_code=event.status_code, headers=[*headers, (b"connection", b"close")], reason=event.reason
            )
        return super().send(event)

    def _skipped(self) -> bytes:
        """What waits to be read, without empty lines; some clients send one behind a body (RFC 9112, 2.2)."""
        waiting = self.trailing_data[0]
        empty = len(waiting) - len(waiting.lstrip(b"\r\n"))
        if empty:
            self._receive_buffer.maybe_extract_at_most(empty)
        return waiting[empty:]

    def _checked(self, request: h11.Request, head: bytes) -> h11.Request:
        if len(head) > self._bytes_max or len(request.headers) > self._fields_max:
            raise self._refused(431, self._too_large())
        if request.http_version not in {b"1.0", b"1.1"}:
            raise self._refused(505, "This server speaks HTTP/1.1.")
        if request.method == b"CONNECT":  # An answer of 200 would begin a tunnel.
            raise self._refused(501, "This server is no proxy.")
        names = [name for name, _ in request.headers]
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version != b"1.1"):
            # RFC 9112, 6.1: whoever forwarded it may have read the other one.
            raise self._refused(400, "A request has Content-Length or, from HTTP/1.1 on, Transfer-Encoding.")
        if b"content-length" in names and _SEVERAL_LENGTHS.search(head):
            # h11 takes several that say the same for one.
            raise self._refused(400, "A request has one Content-Length.")
        if _ODD_LINE.search(head):
            # h11 takes them as they are meant; whoever forwarded the request may have read other headers.
            raise self._refused(400, "Lines end with CR LF, hold no control character, and are not folded.")
        if type(self._reader) is ChunkedReader:
            self._reader = _Chunks(self._bytes_max, self._fields_max)
        if request.target[:1] == b"/" or (request.target == b"*" and request.method == b"OPTIONS"):
            return request
        if _WHOLE_URL.fullmatch(request.target) is None:
            raise self._refused(400, "The request names neither a path nor a URL.")
        return self._with_path(request)

    def _with_path(self, request: h11.Request) -> h11.Request:
        """The request for what is behind the host of a whole URL (RFC 9112, 3.2.2); proxies' clients name it so."""
        try:
            parts = urlsplit(request.target.decode("ascii"))
        except ValueError:
            raise self._refused(400, "The request names no URL.") from None
        host = parts.netloc.rpartition("@")[2].encode("ascii")
        if not host:  # RFC 9110, 4.2.1: there is none without.
            raise self._refused(400, "The request names a URL without a host.")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        # RFC 9112, 3.2.2: the host of the URL is meant, whatever Host says.
        headers = [(name, value) for name, value in request.headers if name != b"host"]
        return h11.Request(
            method=request.method,
            headers=[(b"host", host), *headers],
            target=target,
            http_version=request.http_version,
        )

    def _too_large(self) -> str:
        return f"A request's headers may have {self._bytes_max // 1024} KiB in {self._fields_max} fields."

    def _refused(self, status: int, reason: str) -> h11.RemoteProtocolError:
        self.status, self.reason = status, reason
        return h11.RemoteProtocolError(reason, status)
