"""Pages of other sites and foreign names: raw requests to every route, CORS, and a real browser.

The rule is docs/explanation/gateway.md, H14.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.sites import Asked
from pubsub.errors import ConfigurationError
from pubsub.gateway.handlers.page import FILES
from pubsub.gateway.openapi import document
from pubsub.gateway.process import GatewaySettings, sites_of
from pubsub.web.tokens import digest, new_token
from tests.faults.cluster import Cluster, until
from tests.gateway.browser import DRIVER, REQUIRED, Browser
from tests.gateway.serving import Gateway

in_browser = pytest.mark.skipif(
    DRIVER is None and not REQUIRED, reason="no chromedriver is here: sites were not tried in a browser"
)
APP = "https://app.example"
DESCRIBED = [
    (method.upper(), path.replace("{", "").replace("}", ""))
    for path, item in document()["paths"].items()
    for method in item
    if method != "parameters"
]
ROUTES = [*DESCRIBED, ("OPTIONS", "/topics"), ("GET", "/nowhere"), ("TRACE", "/")]


@pytest.fixture(scope="module")
def allowing(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    flags = ["--allow-host", "pubsub.example", "--allow-origin", APP]
    with Gateway(cluster, tmp_path_factory.mktemp("allowing") / "data", *flags) as gateway:
        yield gateway


def raw(gateway: Gateway, method: str, path: str, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str]]:
    """Status and headers of the answer to a request with exactly these header lines, names in lower case."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "Connection: close"])
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=120) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        with connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            found: dict[str, str] = {}
            while line := answer.readline().strip():
                name, _, value = line.decode().partition(": ")
                found[name.lower()] = value
    return status, found


def local(gateway: Gateway) -> str:
    return f"Host: 127.0.0.1:{gateway.port}"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_route_answers_a_foreign_site_or_name(gateway: Gateway, method: str, path: str) -> None:
    here = local(gateway)
    for lines in (
        ["Host: evil.example"],
        [f"Host: evil.example:{gateway.port}", f"Origin: http://evil.example:{gateway.port}"],
        [here, "Origin: https://evil.example"],
        [here, "Origin: null"],
        [here, "Origin: http://127.0.0.1:1"],
        [here, "Sec-Fetch-Site: cross-site"],
        [here, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"],
    ):
        status, headers = raw(gateway, method, path, *lines)
        assert status == 403, f"{method} {path} {lines}"
        assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize(("method", "path"), DESCRIBED)
def test_a_mistyped_parameter_is_refused_by_every_route(gateway: Gateway, method: str, path: str) -> None:
    for query in ("mxa=1", "Max=1", "access_token=x&access_token=y"):
        answer = gateway.ask(method, f"{path}?{query}")
        assert answer.status_code == 400, answer.text
        assert "parameter" in answer.json()["detail"] or "twice" in answer.json()["detail"]


def test_a_put_of_another_site_is_refused_and_counted(gateway: Gateway) -> None:
    gateway.subscribe("attacked", "s")
    plain = [local(gateway), "Content-Type: text/plain", "Sec-Fetch-Mode: no-cors"]
    for more in ("Sec-Fetch-Site: same-site", "Origin: http://localhost:1"):
        assert raw(gateway, "POST", "/topics/attacked/messages", *plain, more, body=b"evil")[0] == 403
    gateway.put("attacked", b"good")
    assert [message["body"] for message in gateway.take("attacked", "s", 1)] == ["good"]
    assert 'status="403"' in gateway.ask("GET", "/metrics").text


@pytest.mark.parametrize("kind", [[], ["Content-Type: text/plain"], ["Content-Type: application/json"]])
def test_a_program_without_site_headers_may_use_any_content_type_or_none(gateway: Gateway, kind: list[str]) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST:99", "[::1]"):
        assert raw(gateway, "POST", "/topics/plain/messages", f"Host: {host}", *kind, body=b"{}")[0] == 201


def test_the_pages_own_requests_and_a_link_to_the_page_are_answered(gateway: Gateway) -> None:
    here, own = local(gateway), [f"Origin: http://127.0.0.1:{gateway.port}", "Sec-Fetch-Site: same-origin"]
    for path in FILES:
        assert raw(gateway, "GET", path, here, "Sec-Fetch-Site: none")[0] == 200
        assert raw(gateway, "GET", path, here, *own)[0] == 200
    assert raw(gateway, "POST", "/topics/own/messages", here, *own, body=b"x")[0] == 201
    link = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]
    assert raw(gateway, "GET", "/", here, *link)[0] == 200
    assert raw(gateway, "GET", "/", "Host: evil.example", *link)[0] == 403
    assert raw(gateway, "GET", "/", here, "Origin: https://evil.example", *link)[0] == 403
    assert raw(gateway, "GET", "/topics", here, *link)[0] == 403
    framed = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"]
    assert raw(gateway, "GET", "/", here, *framed)[0] == 403


def test_a_name_that_was_allowed_is_known_as_behind_a_reverse_proxy(allowing: Gateway) -> None:
    for lines in (
        ["Host: pubsub.example"],
        ["Host: pubsub.example", "Origin: https://pubsub.example", "Sec-Fetch-Site: same-origin"],
        [local(allowing), "Origin: https://pubsub.example", "Sec-Fetch-Site: same-origin"],
    ):
        assert raw(allowing, "GET", "/topics", *lines)[0] == 200
    assert raw(allowing, "GET", "/topics", "Host: other.example")[0] == 403


def test_an_allowed_site_may_read_every_answer(allowing: Gateway) -> None:
    asks = [local(allowing), f"Origin: {APP}", "Sec-Fetch-Site: cross-site"]
    for method, path, wanted in (
        ("GET", "/topics", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/topics", 405),
        ("GET", "/topics/t/stream?subscriber=none", 404),
        ("GET", "/live", 200),
        ("POST", "/topics/cors/messages", 201),
    ):
        status, headers = raw(allowing, method, path, *asks, body=b"x" if method == "POST" else b"")
        assert (status, headers["access-control-allow-origin"], headers["vary"]) == (wanted, APP, "origin")
        assert "idempotency-replayed" in headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in headers
    status, headers = raw(allowing, "GET", "/topics", local(allowing))
    assert (status, headers["vary"]) == (200, "origin")
    assert "access-control-allow-origin" not in headers


def test_an_allowed_site_may_send_the_headers_that_the_gateway_reads(allowing: Gateway) -> None:
    asked = [
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: authorization,idempotency-key,pubsub-header-trace",
        "Access-Control-Request-Private-Network: true",
    ]
    for path in ("/topics/cors/messages", "/nowhere", "/topics/t/subscribers/s"):
        status, headers = raw(allowing, "OPTIONS", path, local(allowing), f"Origin: {APP}", *asked)
        assert (status, headers["access-control-allow-origin"]) == (204, APP)
        assert headers["access-control-allow-headers"] == "authorization,idempotency-key,pubsub-header-trace"
        assert set(headers["access-control-allow-methods"].split(", ")) >= {"GET", "POST", "PUT", "DELETE"}
        assert headers["access-control-allow-private-network"] == "true"
    status, headers = raw(allowing, "OPTIONS", "/topics", local(allowing), "Origin: https://evil.example", *asked)
    assert (status, "access-control-allow-methods" in headers) == (403, False)
    named = f"Access-Control-Request-Headers: {'x' * 5_000}"
    assert raw(allowing, "OPTIONS", "/topics", local(allowing), f"Origin: {APP}", asked[0], named)[0] == 400


def test_a_gateway_with_tokens_accepts_any_host_but_refuses_other_sites(cluster: Cluster, tmp_path: Path) -> None:
    token, tokens = new_token(), tmp_path / "tokens"
    tokens.write_text(f"alice th_{digest(token)} put=* get=* status\n")
    tokens.chmod(0o600)
    bearer = f"Authorization: Bearer {token}"
    with Gateway(cluster, tmp_path / "data", "--tokens", str(tokens)) as gateway:
        assert raw(gateway, "GET", "/topics", "Host: gateway.example", bearer)[0] == 200
        assert raw(gateway, "GET", "/topics", "Host: gateway.example")[0] == 401
        assert raw(gateway, "GET", "/topics", local(gateway), bearer, "Origin: https://evil.example")[0] == 403


@pytest.mark.parametrize("named", [
    {"allow_hosts": ("http://x",)}, {"allow_hosts": ("x:80",)}, {"allow_origins": ("x",)}, {"allow_origins": ("*",)},
])  # fmt: skip
def test_an_invalid_host_or_origin_is_refused_at_the_start(tmp_path: Path, named: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^an? (host|origin) is"):
        sites_of(GatewaySettings("127.0.0.1:0", tmp_path, **named))


def test_an_allowed_host_beside_tokens_adds_its_pages_and_forbids_no_host(tmp_path: Path) -> None:
    sites = sites_of(GatewaySettings("0.0.0.0:0", tmp_path, tokens=tmp_path, allow_hosts=("pubsub.example",)))
    assert sites.refusal(Asked(("upstream:8080",), ("https://pubsub.example",), ("same-origin",))) == ""
    assert sites.refusal(Asked(("upstream:8080",), ("https://evil.example",), ("same-origin",)))


@contextmanager
def site(page: Callable[[], str]) -> Iterator[str]:
    """Another site, whose only page is that; its origin."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page().encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def page_of(gateway: Gateway) -> str:
    """What docs/how-to/http-clients.md has of JavaScript, for this gateway, with what it prints in the page's title."""
    text = (Path(__file__).parents[2] / "docs/how-to/http-clients.md").read_text()
    script = "".join(part.partition("```")[0] for part in text.split("```js\n")[1:3])
    assert "await fetch" in script
    assert "new EventSource" in script
    script = script.replace("http://127.0.0.1:8080", gateway.url).replace("console.log(", "said(")
    return f"""<title></title><script type="module">
const said = (...words) => {{ document.title += JSON.stringify(words) + "\\n"; }};
try {{ {script} }} catch (error) {{ document.title = "failed: " + error; }}
</script>"""


@in_browser
@pytest.mark.slow
def test_a_foreign_site_in_a_browser_puts_nothing_and_an_allowed_one_receives(
    cluster: Cluster, tmp_path: Path, gateway: Gateway, browser: Browser
) -> None:
    wanted = {"page": ""}
    with site(lambda: wanted["page"]) as origin:
        with Gateway(cluster, tmp_path / "data", "--allow-origin", origin) as allowed:
            wanted["page"] = page_of(allowed)
            browser.go(origin)
            until(lambda: '{\\"order\\": 21}' in browser.run("return document.title"), "what was put comes back")
            allowed.put("orders", b'{"order": 22}')
            until(lambda: '{\\"order\\": 22}' in browser.run("return document.title"), "the stream has it")
        gateway.subscribe("browsed", "s")
        url = json.dumps(f"{gateway.url}/topics/browsed/messages")
        wanted["page"] = f"""<title>no</title><script>
fetch({url}, {{ method: "POST", body: "evil", mode: "no-cors" }}).finally(() => {{ document.title = "tried"; }});
</script>"""
        browser.go(origin)
        until(lambda: browser.run("return document.title") == "tried", "it has tried to put")
        assert gateway.poll("browsed", "s", wait=0)["messages"] == []
