"""The programs on the pages about HTTP run against a real gateway, without our clients."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsub.gateway import limits
from pubsub.gateway.handlers.page import FILES
from pubsub.gateway.process import LIMITS
from tests.faults.cluster import until
from tests.gateway.browser import REQUIRED, Browser
from tests.gateway.serving import Gateway
from tests.gateway.test_page import in_browser
from tests.ports import free_port

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"
REQUESTS = (DOCS / "reference/http-gateway.md").read_text()
CLIENTS = (DOCS / "how-to/http-clients.md").read_text()
WEBHOOKS = (DOCS / "how-to/webhooks.md").read_text()
NODE = shutil.which("node")
RUN = {
    "sh": ["sh", "-ec"],
    "python": [sys.executable, "-c"],
    "js": [NODE or "node", "--input-type=module", "-e"],
}
needs_node = pytest.mark.skipif(NODE is None and not REQUIRED, reason="node is not there")
needs_java = pytest.mark.skipif(shutil.which("java") is None and not REQUIRED, reason="java is not there")


def block(text: str, language: str, gateway: Gateway, port: int = 9000) -> list[str]:
    """The command that runs the first block of a language."""
    found, *_ = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    source = found.replace("http://127.0.0.1:8080", gateway.url).replace("9000", str(port))
    return [*RUN[language], source]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_gateway_with_curl(gateway: Gateway) -> None:
    said = run(block(CLIENTS, "sh", gateway))
    assert '{\\"order\\": 17}' in said
    assert gateway.poll("orders", "shop", wait=0)["messages"] == []


def test_looking_without_taking_with_curl(gateway: Gateway) -> None:
    gateway.subscribe("orders", "looker")
    gateway.put("orders", b"seen")
    until(lambda: gateway.ask("GET", "/topics/orders").status_code == 200, "the report knows the topic")
    said = run(block(REQUESTS.partition("\n## Looking without taking\n")[2], "sh", gateway))
    newest, place = json.JSONDecoder().raw_decode(said)
    oldest, place = json.JSONDecoder().raw_decode(said, place)
    topics, _ = json.JSONDecoder().raw_decode(said, place)
    assert newest["messages"][-1]["body"] == "seen"
    assert len(oldest["messages"]) <= newest["held"] == oldest["held"]
    assert 0 < len(topics["topics"]) <= 10
    assert all(len(topic["subscribers"]) <= 3 for topic in topics["topics"])


def test_keys_and_headers_with_curl(gateway: Gateway) -> None:
    section = REQUESTS.partition("\n## Keys and headers\n")[2]
    *_, batch = run(block(section, "sh", gateway)).strip().splitlines()
    found = json.JSONDecoder().raw_decode(batch, batch.index('{"topic":"orders","subscriber":"ledger","confirm"'))[0]
    assert [(one.get("key"), one.get("headers")) for one in found["messages"]] == [
        ("customer-7", {"trace": "4bf92f"}),
        ("customer-7", {"trace": "1"}),
        (None, None),
    ]


def test_the_gateway_with_python(gateway: Gateway) -> None:
    for _ in range(2):  # It is pasted again, too.
        lines = run(block(CLIENTS, "python", gateway)).splitlines()
        assert lines[1:] == [f'{lines[0]} {{"order": 20}}']
        assert gateway.poll("orders", "desk", wait=0)["messages"] == []


@needs_node
def test_the_gateway_with_javascript(gateway: Gateway) -> None:
    for _ in range(2):
        lines = run(block(CLIENTS, "js", gateway)).splitlines()
        assert lines[1:] == [f'{lines[0]} {{"order": 21}}']
        assert gateway.poll("orders", "page", wait=0)["messages"] == []


@needs_java
def test_the_gateway_with_java(gateway: Gateway, tmp_path: Path) -> None:
    (source,) = re.findall(r"^```java\n(.*?)^```$", CLIENTS, re.MULTILINE | re.DOTALL)
    # At a topic of its own: other programs of the page count what comes from theirs.
    source = source.replace("http://127.0.0.1:8080", gateway.url).replace("/topics/orders/", "/topics/java-orders/")
    (tmp_path / "Orders.java").write_text(source)
    status, batch = run(["java", "-XX:TieredStopAtLevel=1", str(tmp_path / "Orders.java")]).splitlines()
    assert (status, [one["body"] for one in json.loads(batch)["messages"]]) == ("201", ['{"order": 22}'])
    assert gateway.poll("java-orders", "desktop", wait=0)["messages"] == []


def test_the_commands_of_a_webhook(gateway: Gateway) -> None:
    (session,) = re.findall(r"^```\n(\$ export PUBSUB_GATEWAY=.*?)^```$", WEBHOOKS, re.MULTILINE | re.DOTALL)
    commands = "\n".join(re.findall(r"^\$ (.*)$", session, re.MULTILINE)).replace("http://127.0.0.1:8080", gateway.url)
    said = run(["bash", "-ec", f'pubsub() {{ "{sys.executable}" -m pubsub "$@"; }}\n{commands}'])
    assert "whsec_" in said
    assert json.loads(gateway.ask("GET", "/topics/orders/webhooks").text)["webhooks"] == []


@in_browser
def test_the_gateway_with_javascript_in_a_browser(gateway: Gateway, browser: Browser) -> None:
    scripts = re.findall(r"^```js\n(.*?)^```$", CLIENTS, re.MULTILINE | re.DOTALL)
    asking, streaming = (script.replace("http://127.0.0.1:8080", gateway.url) for script in scripts[:2])
    collect = "const said = window.said = []; const console = { log: (...words) => said.push(words.join(' ')) };"
    browser.go(f"{gateway.url}/openapi.json")  # A page of the gateway: those of other origins have to be let in.
    browser.run(f"(async () => {{ {collect} {asking} said.push('end'); }})()")
    until(lambda: "end" in browser.run("return window.said ?? []"), "it ends")
    sent, got, _ = browser.run("return window.said")
    assert got == f'{sent} {{"order": 21}}'
    browser.run(f"(() => {{ {collect} {streaming} }})()")
    gateway.put("orders", b"streamed")
    until(lambda: browser.run("return window.said.join()").endswith(" streamed"), "the stream has it")


@contextmanager
def receiving(command: list[str], place: Path) -> Iterator[Path]:
    with (place / "out").open("wb") as out:
        receiver = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield place / "out"
    finally:
        receiver.kill()
        receiver.wait()


@pytest.mark.parametrize("language", ["python", pytest.param("js", marks=needs_node)])
def test_a_receiver_of_webhooks(gateway: Gateway, tmp_path: Path, language: str) -> None:
    port = free_port()
    with receiving(block(WEBHOOKS, language, gateway, port), tmp_path) as out:
        run(block(WEBHOOKS, "sh", gateway, port))
        put = gateway.put("orders", b'{"order": 22}')
        until(
            lambda: gateway.ask("POST", "/topics/orders/webhooks/billing/retry") and "22" in out.read_text(), "it comes"
        )
        assert out.read_text().rstrip().startswith(put["id"])
    assert gateway.ask("DELETE", "/topics/orders/webhooks/billing").status_code == 204


def test_the_page_names_each_request(gateway: Gateway) -> None:
    paths = json.loads(gateway.ask("GET", "/openapi.json").text)["paths"]
    for path in paths.keys() - FILES.keys():
        words = [word for word in path.split("/") if word and not word.startswith("{")]
        assert all(word in REQUESTS for word in words), path


def test_the_page_has_the_present_limits() -> None:
    table = REQUESTS.partition("## Limits")[2].partition("## Metrics")[0]
    for number in (
        limits.BODY_BYTES_MAX >> 20, limits.BODIES_BYTES_MAX >> 20, limits.HEADER_BYTES_MAX >> 10,
        LIMITS.header_fields_max, limits.CONNECTIONS_MAX, limits.POLL_RECORDS_MAX, limits.SUBSCRIBERS_MAX,
        limits.OPEN_CLIENTS_MAX, limits.WEBHOOK_WINDOW, limits.DEAD_LETTERS_MAX, limits.KEEP_ALIVE_SECONDS,
        limits.GROUP_RECORDS_MAX,
    ):  # fmt: skip
        assert re.search(rf"\b{number:,}\b", table), number
