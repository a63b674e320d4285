"""The document: it is complete, it describes the served operations, and every operation is answered accordingly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from pubsub.config.settings import ClientSettings
from pubsub.gateway.app import Gateway as App
from pubsub.gateway.handlers.page import FILES
from pubsub.gateway.openapi import document, encoded
from pubsub.protocol.names import Start
from pubsub.web.tokens import Users
from tests.faults.cluster import until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import SEEN, Gateway


class NoReads:
    def records(self, user: str, topic: str, start: Start, stop: Start, after: str, most: int) -> dict[str, Any]:
        return {}

    def times(self, user: str, topic: str) -> dict[str, Any]:
        return {}

    def table(self, user: str, topic: str) -> dict[bytes, bytes]:
        return {}


class Nothing:
    """Operations that are none."""

    def move(self, topic: str, to: str) -> dict[str, Any]:
        return {"topic": topic, "to": to}

    def unsubscribe(self, topic: str, client: str) -> dict[str, Any]:
        return {"topic": topic, "client": client}

    def settings(self, user: str, topic: str) -> dict[str, Any]:
        return {"user": user, "topic": topic}

    def configure(self, topic: str, values: Mapping[str, str | None], base: str | None) -> dict[str, Any]:
        return {"topic": topic, **values, "base": base}

    def drain(self, server: str, *, stop: bool) -> dict[str, Any]:
        return {"server": server, "stop": stop}


def operations() -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, item in document()["paths"].items()
        for method in item
        if method != "parameters"
    }


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [one for value in node.values() for one in references(value)]
    return [one for value in node for one in references(value)] if isinstance(node, list) else []


def test_every_schema_is_one_and_every_reference_leads_to_one() -> None:
    schemas = document()["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    assert set(references(document())) <= {f"#/components/schemas/{name}" for name in schemas}


def test_every_operation_has_its_own_name_and_declares_its_path_parameters() -> None:
    names = []
    for path, item in document()["paths"].items():
        declared = {one["name"] for one in item.get("parameters", []) if one["in"] == "path"}
        assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        names += [operation["operationId"] for method, operation in item.items() if method != "parameters"]
    assert len(names) == len(set(names))


def test_the_described_operations_are_the_served_ones(tmp_path: Path) -> None:
    async def served() -> set[tuple[str, str]]:
        app = App(ClientSettings(), tmp_path, Users(), dict, Nothing(), lambda *_: {}, NoReads())
        await app.close()
        return {(method, path) for path, methods in app.routes.paths.items() for method in methods}

    assert asyncio.run(served()) == operations()


def test_every_operation_succeeds_and_is_answered_as_described(gateway: Gateway) -> None:
    with Receiver() as receiver:
        tour(gateway, receiver)
    answered = {(method, path) for method, path, status in SEEN if status < 300}
    assert ("PUT", "/servers/{server}/drain", 409) in SEEN  # With one server alone; test_operations has more.
    drain = ("PUT", "/servers/{server}/drain")
    streams = {("GET", "/topics/{topic}/stream"), ("GET", "/live")}  # They are read in test_streaming and test_page.
    assert operations() - answered - {drain} == streams


def tour(gateway: Gateway, receiver: Receiver) -> None:
    base = "/topics/tour"
    gateway.subscribe("tour", "s")
    gateway.put("tour", b"w")
    assert gateway.ask("POST", f"{base}/move", {"to": "s1"}).json()["moved"] is False
    gateway.subscribe("tour", "dead")
    assert gateway.ask("DELETE", f"{base}/clients/http.dead").status_code == 200
    assert gateway.ask("DELETE", "/servers/s1/drain").json()["draining"] is False
    assert gateway.ask("PUT", "/servers/s1/drain").status_code == 409
    gateway.put("tour", b"x", pubsub_key="k")
    gateway.ask("GET", f"{base}/table")
    assert gateway.ask("GET", f"{base}/table/k").json()["body"] == "x"
    assert gateway.ask("GET", f"{base}/messages").status_code == 200
    gateway.ask("GET", f"{base}/subscribers/s")
    gateway.ask("GET", f"{base}/subscribers/s/dead-letters")
    gateway.confirm(gateway.poll("tour", "s"))
    gateway.ask("POST", f"{base}/subscribers/s/seek", {"start": "latest"})
    gateway.ask("POST", f"{base}/clients/http.s/seek", {"start": "earliest"})
    gateway.ask("GET", f"{base}/records")
    gateway.ask("GET", f"{base}/times")
    gateway.ask("DELETE", f"{base}/subscribers/s")
    tour_of_groups(gateway, base)
    gateway.ask("PUT", f"{base}/webhooks/w", {"url": receiver.url})
    gateway.ask("PUT", f"{base}/settings", {"keep": "1d"})
    gateway.ask("GET", f"{base}/settings")
    gateway.ask("PUT", "/topics/tour-made", {"keep": "1d"})
    gateway.ask("DELETE", "/topics/tour-made")
    gateway.ask("POST", f"{base}/purge", {"unread": False})
    for path in ("webhooks", "webhooks/w", "webhooks/w/dead-letters"):
        gateway.ask("GET", f"{base}/{path}")
    gateway.ask("POST", f"{base}/webhooks/w/retry")
    gateway.ask("POST", f"{base}/webhooks/w/redrive")
    gateway.ask("DELETE", f"{base}/webhooks/w/dead-letters?age=0")
    gateway.ask("DELETE", f"{base}/webhooks/w")
    until(lambda: gateway.ask("GET", base).status_code == 200, "the report knows the topic")
    for path in ("/topics", "/patterns", "/servers", "/proxies", "/metrics", "/livez", "/readyz", *FILES):
        assert gateway.ask("GET", path).status_code == 200, path
    assert gateway.ask("GET", "/openapi.json").json() == json.loads(encoded())


def tour_of_groups(gateway: Gateway, base: str) -> None:
    group, member = f"{base}/groups/g", f"{base}/groups/g/members/m"
    assert gateway.ask("PUT", member).status_code == 201
    gateway.put("tour", b"y")
    batch = until(lambda: gateway.ask("GET", f"{member}/messages?wait=5").content, "a batch came")
    confirm = json.loads(batch)["confirm"]
    gateway.ask("POST", f"{confirm}/later", {"seconds": 0})
    batch = until(lambda: gateway.ask("GET", f"{member}/messages?wait=5").content, "it came again")
    confirm = json.loads(batch)["confirm"]
    gateway.ask("POST", f"{confirm}/reject", {"reason": "no such customer"})
    assert gateway.ask("DELETE", confirm).status_code == 204
    gateway.ask("GET", member)
    assert [one["name"] for one in gateway.ask("GET", f"{base}/groups").json()["groups"]] == ["g"]
    gateway.ask("GET", group)
    gateway.ask("PATCH", group, {"attempts": 2})
    gateway.ask("POST", f"{group}/redrive")
    gateway.ask("POST", f"{group}/drop")
    gateway.ask("POST", f"{group}/resume", {"skip": False})
    assert gateway.ask("DELETE", member).status_code == 204
    gateway.ask("POST", f"{group}/release", {"member": "http.g.m", "force": True})
    assert gateway.ask("DELETE", group).status_code == 204
