"""Other people's HTTP clients as they are by default, and requests in raw bytes, against a real gateway."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import time
import zlib
from pathlib import Path

import pytest

from tests.gateway.browser import REQUIRED
from tests.gateway.serving import CLIENT, LINES, Gateway

pytestmark = pytest.mark.slow

SECONDS = 100.0
OFFER = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"]

PUT_JAVA = """
import java.net.URI;
import java.net.http.*;

public class Put {
    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 0; i < 3; i++) {
            HttpRequest.BodyPublisher body = i < 2
                ? HttpRequest.BodyPublishers.ofString("order-" + i)
                : HttpRequest.BodyPublishers.fromPublisher(HttpRequest.BodyPublishers.ofString("order-" + i));
            HttpRequest request = HttpRequest.newBuilder(URI.create(args[0])).header("Idempotency-Key", "key-" + i)
                .timeout(java.time.Duration.ofSeconds(30)).POST(body).build();
            System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode() + " ");
        }
    }
}
"""

PUT_NODE = """
const http = require("node:http");
const url = process.argv[2];
const offering = (body) => new Promise((resolve, reject) => {
    const headers = { Connection: "Upgrade", Upgrade: "h2c", "Content-Length": body.length };
    const request = http.request(url, { method: "POST", headers }, (answer) => {
        answer.resume();
        answer.on("end", () => resolve(answer.statusCode));
    });
    request.on("error", reject);
    request.end(body);
});
const main = async () => {
    const first = await fetch(url, { method: "POST", body: "order-0", signal: AbortSignal.timeout(30000) });
    const stream = new Blob(["order-1"]).stream();
    const signal = AbortSignal.timeout(30000);
    const second = await fetch(url, { method: "POST", body: stream, duplex: "half", signal });
    console.log(first.status, second.status, await offering("order-2"));
};
main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
"""


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None and not REQUIRED
    return pytest.mark.skipif(missing, reason=f"no {program} is here: it was not tried")


def said(*command: str) -> list[str]:
    """Words that a program prints."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def bodies(gateway: Gateway, topic: str, count: int) -> list[str]:
    return [message["body"] for message in gateway.take(topic, "s", count)]


@needs("java")
def test_the_standard_java_client_puts_its_bodies(gateway: Gateway, tmp_path: Path) -> None:
    gateway.subscribe("java", "s")
    (tmp_path / "Put.java").write_text(PUT_JAVA)
    url = f"{gateway.url}/topics/java/messages"
    assert said("java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Put.java"), url) == ["201"] * 3
    assert bodies(gateway, "java", 3) == ["order-0", "order-1", "order-2"]


@needs("node")
def test_a_node_client_puts_its_bodies(gateway: Gateway, tmp_path: Path) -> None:
    gateway.subscribe("node", "s")
    (tmp_path / "put.js").write_text(PUT_NODE)
    assert said("node", str(tmp_path / "put.js"), f"{gateway.url}/topics/node/messages") == ["201"] * 3
    assert bodies(gateway, "node", 3) == ["order-0", "order-1", "order-2"]


@needs("curl")
@pytest.mark.parametrize("flags", [["--http2"], ["--http2", "-H", "Transfer-Encoding: chunked"], ["--http1.0"]])
def test_the_command_curl_puts_its_bodies(gateway: Gateway, flags: list[str]) -> None:
    topic = f"curl-{len(flags)}-{flags[0].strip('-')}"
    gateway.subscribe(topic, "s")
    url = f"{gateway.url}/topics/{topic}/messages"
    each = ["-sS", "-m", "30", "-o", "/dev/null", "-w", "%{http_code} ", *flags]
    first = ["curl", *each, "-H", "Idempotency-Key: one", "-d", "order-0", url]
    assert said(*first, "--next", *each, "-d", "order-1", url) == ["201", "201"]
    assert said("curl", *each, "-H", "Idempotency-Key: one", "-d", "order-0", url) == ["201"]
    assert bodies(gateway, topic, 2) == ["order-0", "order-1"]


def spoken(gateway: Gateway, *lines: str, content: bytes = b"", until: bytes = b"") -> bytes:
    """What comes back to a request, until the other side closes or this has come."""
    with socket.create_connection(("127.0.0.1", gateway.port), SECONDS) as peer:
        peer.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + content)
        found, end = b"", time.monotonic() + SECONDS
        while time.monotonic() < end and not (until and until in found):
            if not (piece := peer.recv(1 << 16)):
                break
            found += piece
        return found


def test_an_offer_with_an_idempotency_key_stores_the_body_under_it(gateway: Gateway) -> None:
    gateway.subscribe("offered", "s")
    head = ["POST /topics/offered/messages HTTP/1.1", "Host: localhost", "Content-Length: 5", "Idempotency-Key: one"]
    assert spoken(gateway, *head, *OFFER, content=b"hello", until=b"}").startswith(b"HTTP/1.1 201 ")
    assert gateway.ask("POST", "/topics/offered/messages", b"hello", idempotency_key="one").status_code == 201
    assert bodies(gateway, "offered", 1) == ["hello"]


def test_a_stream_with_an_upgrade_offer_works_and_its_end_is_noticed(gateway: Gateway) -> None:
    gateway.subscribe("offered-stream", "s")
    line = "GET /topics/offered-stream/stream?subscriber=s HTTP/1.1"
    assert b"retry: 1000" in spoken(gateway, line, "Host: localhost", *OFFER, until=b"retry: 1000\n\n")
    end = time.monotonic() + SECONDS
    path = "/topics/offered-stream/subscribers/s/messages?wait=0"
    while (status := CLIENT.get(gateway.url + path).status_code) == 409:
        assert time.monotonic() < end, "the stream still has its subscriber"
    assert status == 204


def test_a_stream_to_http_1_0_has_no_chunks(gateway: Gateway) -> None:
    gateway.subscribe("old", "s")
    gateway.put("old", b"hello")
    found = spoken(gateway, "GET /topics/old/stream?subscriber=s HTTP/1.0", until=b'"hello"')
    head, _, content = found.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert content.startswith(b"retry: 1000\n\nid: 1\ndata: {")


def test_http_1_1_without_host_is_400(gateway: Gateway) -> None:
    answer = spoken(gateway, "GET /livez HTTP/1.1")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "urn:pubsub:problem:bad-request"


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/", "/metrics", "/openapi.json", "/topics", "/servers", "/page.js"]
)
def test_head_is_get_without_content(gateway: Gateway, path: str) -> None:
    asked, got = CLIENT.head(gateway.url + path), CLIENT.get(gateway.url + path)
    assert (asked.status_code, asked.content) == (got.status_code, b"") == (200, b"")
    assert asked.headers["content-type"] == got.headers["content-type"]


def test_a_waiting_request_refuses_the_method_head(gateway: Gateway) -> None:
    gateway.subscribe("no-head", "s")
    for path in ("/live", "/topics/no-head/stream?subscriber=s", "/topics/no-head/subscribers/s/messages"):
        answer = CLIENT.head(gateway.url + path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET"), path
    assert CLIENT.put(gateway.url + "/livez").headers["allow"] == "GET, HEAD"


TEXT = b"".join(b'{"i":%d}\n' % number for number in range(400))


@pytest.mark.parametrize(("coding", "body"), [("gzip", gzip.compress(TEXT)), ("deflate", zlib.compress(TEXT))])
def test_compressed_lines_are_decoded_and_the_same_as_plain_ones(gateway: Gateway, coding: str, body: bytes) -> None:
    path, named = f"/topics/{coding}/messages", {**LINES, "idempotency-key": "one"}
    first = gateway.ask("POST", path, body, **named, content_encoding=coding)
    assert (first.status_code, first.json()["count"]) == (201, 400)
    assert gateway.ask("POST", path, TEXT, **named).json() == first.json()


@pytest.mark.parametrize(
    ("status", "body", "fields"),
    [
        (413, gzip.compress(bytes(65 << 20), 1), {"content_encoding": "gzip"}),
        (400, gzip.compress(TEXT)[:-1], {"content_encoding": "gzip"}),
        (400, TEXT, {"content_encoding": "deflate"}),
        (415, TEXT, {"content_encoding": "br"}),
        (415, TEXT, {"content_encoding": "gzip, gzip"}),
    ],
)
def test_a_compressed_body_that_is_not_taken_puts_nothing(
    gateway: Gateway, status: int, body: bytes, fields: dict[str, str]
) -> None:
    gateway.subscribe("refused", "s")
    answer = gateway.ask("POST", "/topics/refused/messages", body, **LINES, **fields)
    assert answer.status_code == status
    assert gateway.poll("refused", "s", wait=0)["messages"] == []


@pytest.mark.parametrize(
    "field",
    ["Idempotency-Key: a", "Content-Type: text/plain", "Authorization: Bearer x", "Host: localhost", "Pubsub-Key: k",
     "Content-Encoding: identity", "Content-Length: 1", "Last-Event-ID: 1", "Origin: http://localhost"],
)  # fmt: skip
def test_a_repeated_header_is_refused(gateway: Gateway, field: str) -> None:
    lines = ["POST /topics/doubled/messages HTTP/1.1", "Connection: close", field, field.lower()]
    more = [line for line in ("Host: localhost", "Content-Length: 1") if not field.startswith(line[:5])]
    answer = spoken(gateway, *lines, *more, content=b"x")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert gateway.ask("GET", "/topics/doubled").status_code == 404
