"""A gateway as a process, and requests with answers that are checked against its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

from pubsub.gateway.openapi import document
from pubsub.gateway.problems import Problem
from pubsub.gateway.routing import Routes
from tests.faults.cluster import Cluster, Process
from tests.ports import free_port

DOCUMENT = document()
ROUTES: Routes[tuple[str, dict[str, Any]]] = Routes()
for _path, _item in DOCUMENT["paths"].items():
    for _method, _operation in _item.items():
        if _method != "parameters":
            ROUTES.add(_method.upper(), _path, (_path, _operation))

CLIENT = httpx2.Client(
    timeout=120, trust_env=False, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0), verify=False
)
"""Without connections that stay: one of a gateway that was killed would fail the next one's first request."""

LINES = {"content-type": "application/x-ndjson"}
SEEN: set[tuple[str, str, int]] = set()
"""Method, path and status of every answer that was held against the document."""


def check(answer: httpx2.Response) -> httpx2.Response:
    """Sees that the document knows this answer: its status, its kind and its shape."""
    request = answer.request
    if answer.status_code >= 400:
        _conforms(answer, {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}})
    raw = request.url.raw_path.partition(b"?")[0]
    try:
        (path, operation), _ = ROUTES.find(request.method, raw)
    except Problem:
        return answer  # A path that is none: that the answer is a problem was seen above.
    SEEN.add((request.method, path, answer.status_code))
    found = operation["responses"].get(str(answer.status_code))
    assert found is not None, f"{request.method} {path} answered {answer.status_code}: {answer.text}"
    if "content" not in found:
        assert answer.content == b"", answer.text
    else:
        _conforms(answer, found["content"])
    return answer


def _conforms(answer: httpx2.Response, content: dict[str, Any]) -> None:
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in content, f"{kind} is not in {list(content)}"
    if kind.endswith("json"):
        schema = content[kind]["schema"] | {"components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(answer.json())


class Gateway:
    """A gateway of a cluster; a context manager that ends it.

    Args:
        cluster: the cluster with its topics.
        directory: where its state lives.
        flags: words of its command besides.
        token: the token of its requests.
        proxies: addresses of proxies; None: the cluster's.
    """

    def __init__(
        self, cluster: Cluster, directory: Path, *flags: str, token: str = "", proxies: list[str] | None = None
    ) -> None:
        self.directory = directory
        self.port = free_port()
        named = [word for address in proxies or cluster.addresses for word in ("--proxy", address)]
        keys = [word for key in cluster.proxy_keys() for word in ("--proxy-key", key)]
        own = [] if cluster.keys is None else ["--key", str(cluster.keys.client)]
        command = ["-m", "pubsub", "gateway", "start", "--bind", f"127.0.0.1:{self.port}", "--dir", str(directory)]
        name = f"gateway-{directory.name}"
        self.process: Process = cluster.process(name, *command, *named, *keys, *own, *flags)
        self.token, self.scheme = token, "http"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> Gateway:
        """Starts it, and waits until it is ready."""
        self.process.start()
        self.process.wait_line("gateway ready")
        return self

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.running.terminate()
        return self.process.wait()

    def __enter__(self) -> Gateway:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.process.end()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """One request, its answer held against the document. A body that is no bytes is JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            named.setdefault("authorization", f"Bearer {self.token}")
        return check(CLIENT.request(method, self.url + path, content=content, headers=named))

    def put(self, topic: str, body: bytes, **headers: str) -> dict[str, Any]:
        """Puts one message; the answer."""
        answer = self.ask("POST", f"/topics/{topic}/messages", body, **headers)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def subscribe(self, topic: str, name: str) -> None:
        """Subscribes."""
        assert self.ask("PUT", f"/topics/{topic}/subscribers/{name}").status_code in {200, 201}

    def poll(self, topic: str, name: str, most: int = 100, wait: float = 10.0) -> dict[str, Any]:
        """The next batch; without `messages` where nothing came."""
        answer = self.ask("GET", f"/topics/{topic}/subscribers/{name}/messages?max={most}&wait={wait}")
        assert answer.status_code in {200, 204}, answer.text
        return dict(answer.json()) if answer.content else {"messages": []}

    def confirm(self, batch: dict[str, Any]) -> None:
        """Takes a batch."""
        assert self.ask("DELETE", batch["confirm"]).status_code == 204

    def take(self, topic: str, name: str, count: int) -> list[dict[str, Any]]:
        """Polls and confirms until so many messages have come, and sees that no more do."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            batch = self.poll(topic, name)
            assert batch["messages"], f"only {len(found)} of {count} came"
            found += batch["messages"]
            self.confirm(batch)
        assert self.poll(topic, name, wait=0)["messages"] == []
        return found

    @contextmanager
    def events(self, topic: str, name: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """A stream's events, each with `id`, `event` and `data`."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        url = f"{self.url}/topics/{topic}/stream?subscriber={name}"
        with CLIENT.stream("GET", url, headers=named) as answer:
            assert answer.status_code == 200, answer.read()
            yield parsed(answer.iter_lines())


def parsed(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events from lines, as the HTML standard reads them."""
    event: dict[str, Any] = {}
    for line in lines:
        if not line:
            if "data" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value
