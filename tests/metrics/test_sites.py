"""The port of metrics answers programs and its own pages; a page of another site reads nothing there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pubsub.metrics.serving import Metrics
from tests.metrics.reading import connect, said

PATHS = ["/metrics", "/livez", "/readyz", "/nowhere"]
NAVIGATING = ["Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"]


@pytest.fixture(scope="module")
def here() -> Iterator[Metrics]:
    """Metrics that this host alone reaches."""
    made = Metrics("127.0.0.1:0", lambda: None)
    yield made
    made.close()


@pytest.fixture(scope="module")
def everywhere() -> Iterator[Metrics]:
    """Metrics that others may reach."""
    made = Metrics("0.0.0.0:0", lambda: None, insecure=True)
    yield made
    made.close()


def place(metrics: Metrics) -> str:
    return metrics.url.removeprefix("http://").removesuffix("/metrics").replace("0.0.0.0", "127.0.0.1")


def status(metrics: Metrics, *lines: str, path: str = "/livez", method: str = "GET") -> int:
    """What a request with exactly these header lines is answered; SELF stands for the port's own place."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).replace("SELF", place(metrics))
    with connect(f"http://{place(metrics)}/metrics") as sock:
        sock.sendall(head.encode())
        return int(said(sock).split(b" ")[1])


FOREIGN_PAGES = [
    ["Host: SELF", "Origin: https://evil.example"],
    ["Host: SELF", "Origin: null"],
    ["Host: SELF", "Sec-Fetch-Site: cross-site"],
    ["Host: SELF", "sec-fetch-site:same-site"],
    ["Host: SELF", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"],
    ["Host: SELF", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: document"],
]
FOREIGN_NAMES = [
    ["Host: evil.example"],
    ["Host: evil.example", "Host: SELF"],
    ["Host: localhost.evil.example:80"],
    ["Host: 203.0.113.7"],
    ["Host: evil.example", "Sec-Fetch-Site: none", *NAVIGATING],
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("lines", [*FOREIGN_PAGES, *FOREIGN_NAMES])
def test_pages_of_other_sites_and_foreign_names_are_refused_on_every_path(
    here: Metrics, path: str, lines: list[str]
) -> None:
    assert status(here, *lines, path=path) == 403


def test_a_post_is_refused_from_other_pages_and_not_allowed_from_its_own(here: Metrics) -> None:
    assert status(here, "Host: SELF", "Origin: https://evil.example", method="POST") == 403
    assert status(here, "Host: SELF", method="POST") == 405


@pytest.mark.parametrize("lines", [
    [],
    ["Host: "],
    ["Host: SELF"],
    ["Host: localhost:9400"],
    ["Host: [::1]:9400"],
    [f"Host: {socket.gethostname()}:9400"],
    ["Host: SELF", "Origin: http://SELF", "Sec-Fetch-Site: same-origin"],
    ["Host: SELF", "Sec-Fetch-Site: none", *NAVIGATING],
    ["Host: SELF", "Sec-Fetch-Site: cross-site", *NAVIGATING],
])  # fmt: skip
def test_programs_and_people_are_answered(here: Metrics, lines: list[str]) -> None:
    assert status(here, *lines) == 200


@pytest.mark.parametrize("host", ["proxy1:9400", "proxy1.pubsub.example", "203.0.113.7:9400"])
def test_prometheus_may_scrape_by_any_name_where_others_reach_the_port(everywhere: Metrics, host: str) -> None:
    assert status(everywhere, f"Host: {host}") == 200


@pytest.mark.parametrize("lines", FOREIGN_PAGES)
def test_pages_of_other_sites_are_refused_on_every_interface(everywhere: Metrics, lines: list[str]) -> None:
    assert status(everywhere, *lines) == 403


def test_the_refusal_names_the_reason_in_one_line(here: Metrics) -> None:
    with connect(here.url) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        head, _, body = said(sock).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert body == b"this service is not known as evil.example\n"


def test_an_address_of_ipv6_is_known_as_itself() -> None:
    metrics = Metrics("[::1]:0", lambda: None)
    try:
        port = metrics.url.rpartition(":")[2].partition("/")[0]
        for host, expected in ((f"[::1]:{port}", 200), ("localhost", 200), ("[2001:db8::1]", 403)):
            with socket.create_connection(("::1", int(port)), timeout=120) as sock:
                sock.sendall(f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert int(said(sock).split(b" ")[1]) == expected
    finally:
        metrics.close()
