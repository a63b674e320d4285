"""Requests in raw bytes: offers of an upgrade change nothing, and ambiguous requests are refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from pubsub.web.connections import numbers
from tests.web.rig import serving, spoken, statuses

OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n",
    "TLS": b"Connection: upgrade\r\nUpgrade: TLS/1.2\r\n",
    "several": b"Connection: keep-alive, Upgrade\r\nUpgrade: IRC/6.9, RTA/x11\r\nUpgrade: h2c\r\n",
    "unannounced": b"Upgrade: h2c\r\n",
}
BODIES = {
    "length": (b"Content-Length: 5\r\n", b"hello"),
    "chunked": (b"Transfer-Encoding: chunked\r\n", b'3;a="b c"\r\nhel\r\n2\r\nlo\r\n0\r\nT: v\r\n\r\n'),
    "empty": (b"Content-Length: 0\r\n", b""),
    "empty-chunked": (b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
}
LAST = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as found:
        yield found


def contents(answers: bytes) -> list[bytes]:
    """Bodies of answers, one behind the other."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        found.append(rest[:length])
        answers = rest[length:]
    return found


@pytest.mark.parametrize("packets", ["one packet", "two packets", "by the byte"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("offer", OFFERS)
def test_a_body_and_the_next_request_arrive_under_any_offered_upgrade(
    port: int, offer: str, body: str, packets: str
) -> None:
    fields, content = BODIES[body]
    head = b"POST / HTTP/1.1\r\nHost: x\r\n" + OFFERS[offer] + fields + b"\r\n"
    if packets == "one packet":
        parts = [head + content + LAST]
    elif packets == "two packets":
        parts = [head, content + LAST]
    else:
        parts = [head, *(bytes([byte]) for byte in content[:4]), content[4:], LAST]
    answers = spoken(port, *[part for part in parts if part])
    assert statuses(answers) == [200, 200]
    assert contents(answers) == [b"" if body.startswith("empty") else b"hello", b"last"]


def test_the_application_sees_no_offer(port: int) -> None:
    request = b"GET /seen HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    seen = json.loads(contents(spoken(port, request))[0])
    assert "upgrade" not in seen
    assert seen["host"] == "x"


def test_a_sender_that_waits_for_100_continue_and_offers_an_upgrade_gets_it(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n" + OFFERS["h2c"] + b"Content-Length: 5\r\n\r\n"
    assert statuses(spoken(port, head, b"hello" + LAST)) == [100, 200, 200]


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = {
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "one length twice": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\na",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na",
    "LF alone": b"GET / HTTP/1.1\nHost: x\n\n",
    "LF alone once": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "CR alone": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
    "a control character": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x01\r\n\r\n",
    "no path": b"GET a HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL of no scheme": b"GET 1:a://x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL of another scheme": b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL without a host": b"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a URL with a user and no host": b"GET http://a@/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "LF behind a chunk's size": CHUNKED + b"3\nhel\n0\n\n",
    "LF behind a later chunk's size": CHUNKED + b"3\r\nhel\r\n0\n\n",
    "LF in a chunk's extension": CHUNKED + b"3;\nabc\r\nhel\r\n0\r\n\r\n",
    "LF in a later chunk's extension": CHUNKED + b"3\r\nhel\r\n2;\nab\r\nlo\r\n0\r\n\r\n",
    "CR in a chunk's extension": CHUNKED + b"3;\rabc\r\nhel\r\n0\r\n\r\n",
    "LF behind a trailer": CHUNKED + b"3\r\nhel\r\n0\r\nT: v\n\r\n",
    "LF at the end of trailers": CHUNKED + b"0\r\nT: v\r\n\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in 1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length that is none": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "a bad chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "a chunk too long": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: x\r\na: \0\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_request_of_http_1_1_is_answered_400_and_closed(port: int, what: str) -> None:
    answer = spoken(port, REFUSED[what])
    assert statuses(answer) == [400]
    assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.parametrize("request_", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/0.9\r\nHost: x\r\n\r\n"])
def test_another_version_is_answered_505(port: int, request_: bytes) -> None:
    assert statuses(spoken(port, request_)) == [505]


def test_a_transfer_coding_that_is_not_known_is_answered_501(port: int) -> None:
    request = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    assert statuses(spoken(port, request)) == [501]


def test_a_tunnel_is_refused(port: int) -> None:
    assert statuses(spoken(port, b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n")) == [501]


def test_a_fault_in_the_midst_of_a_body_while_the_answer_is_sent_ends_the_connection(port: int) -> None:
    head = b"POST /stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    assert statuses(spoken(port, head, b"nonsense\r\n")) in ([200], [400])


@pytest.mark.parametrize("connection", [b"", b"Connection: keep-alive\r\n"])
def test_a_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection(port: int, connection: bytes) -> None:
    with_length = spoken(port, b"GET / HTTP/1.0\r\n" + connection + b"\r\n")
    assert statuses(with_length) == [200]
    answer = stream(port, b"GET /stream HTTP/1.0\r\n" + connection + b"\r\n")
    assert b"transfer-encoding" not in answer.lower()
    assert answer.endswith(b"\r\n\r\ndata: 1\n\n")
    assert b"transfer-encoding: chunked" in stream(port, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n").lower()


def stream(port: int, request: bytes) -> bytes:
    import socket

    with socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(request)
        found = b""
        while b"data: 1\n\n" not in found:
            found += peer.recv(1 << 16)
        return found


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://x:80/a%2Fb?c=d", "/a%2Fb"), (b"https://user@x", "/"), (b"http://x?c", "/"), (b"/http://x", "/http://x")],
)
def test_a_target_may_be_a_complete_url_as_for_a_proxy(port: int, target: bytes, path: str) -> None:
    # The application answers /seen alone with what it saw; so the path of the others is taken from a parser.
    from pubsub.web.parsing import Parser

    parser = Parser(1024, 10)
    parser.receive_data(b"GET " + target + b" HTTP/1.1\r\nHost: other\r\n\r\n")
    request = parser.next_event()
    assert request.target.partition(b"?")[0].decode() == path
    hosts = [value for name, value in request.headers if name == b"host"]
    assert len(hosts) == 1
    assert (hosts[0] == b"other") is target.startswith(b"/")
    assert statuses(spoken(port, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == [200]


@pytest.mark.parametrize("target", [b"http://[x/", b"*", b"x:443", b"//x", b"a://;b", b"a://?#"])
def test_other_targets_are_no_error_of_the_server(port: int, target: bytes) -> None:
    answer = spoken(port, b"OPTIONS " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert statuses(answer)[0] in {200, 400}


def test_many_small_fields_are_counted_before_the_application_sees_them(port: int) -> None:
    before = numbers()["headers_too_large"]
    fields = b"".join(b"a%d: b\r\n" % number for number in range(101))
    assert statuses(spoken(port, b"GET / HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")) == [431]
    assert numbers()["headers_too_large"] == before + 1


@pytest.mark.parametrize("trailers", [b"a: b\r\n" * 101, b"a: " + b"b" * 33_000 + b"\r\n"])
def test_trailers_have_the_limits_of_headers(port: int, trailers: bytes) -> None:
    assert statuses(spoken(port, CHUNKED + b"3\r\nhel\r\n0\r\n" + trailers + b"\r\n")) == [431]


def test_a_chunks_line_has_the_limit_of_headers(port: int) -> None:
    assert statuses(spoken(port, CHUNKED + b"3;" + b"a" * 33_000 + b"\r\nhel\r\n0\r\n\r\n")) == [431]


def test_head_is_answered_without_content(port: int) -> None:
    answer = spoken(port, b"HEAD /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert statuses(answer) == [200]
    assert answer.endswith(b"\r\n\r\n")


def test_a_gzipped_body_arrives_decoded(port: int) -> None:
    content = gzip.compress(b"hello" * 1000)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    assert contents(spoken(port, head % len(content), content))[0] == b"hello" * 1000
