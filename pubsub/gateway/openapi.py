"""The gateway's description (OpenAPI 3.1): every path, method, status and shape; tests hold every answer against it."""

from __future__ import annotations

import json
from typing import Any, Final

from pubsub.gateway.limits import PEEK_RECORDS_MAX, POLL_RECORDS, POLL_RECORDS_MAX, WAIT_SECONDS_MAX
from pubsub.gateway.schemas import SCHEMAS, Schema, ref
from pubsub.gateway.splitting import MESSAGES
from pubsub.monitoring.rows import SORTS
from pubsub.web.problems import MEDIA_TYPE as PROBLEM

_JSON: Final = "application/json"
_TEXT: Final[Schema] = {"type": "string"}
_COMMON: Final = (400, 401, 403, 404, 405, 431, 500, 502, 503, 507)


def _content(kind: str, schema: Schema) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


def _json(text: str, name: str) -> dict[str, Any]:
    return {"description": text, **_content(_JSON, ref(name))}


def _problems(*statuses: int) -> dict[str, Any]:
    found = {"description": "Why not.", **_content(PROBLEM, ref("Problem"))}
    return {str(status): found for status in sorted({*_COMMON, *statuses})}


def _parameter(name: str, where: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": text, "required": required, "schema": schema}


def _query(name: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return _parameter(name, "query", text, schema, required=required)


_MAX: Final = _query(
    "max", f"Messages at most [{POLL_RECORDS}].", {"type": "integer", "minimum": 1, "maximum": POLL_RECORDS_MAX}
)
_AFTER: Final = _query("after", "The number of the last one that was seen.", {"type": "integer", "minimum": 0})
_BEGINNINGS: Final = _query("beginnings", "Only the beginnings of large keys and bodies.", {"type": "boolean"})
_PLACES: Final = {
    "topic": "The topic; a slash in it is written %2F.",
    "subscriber": "The subscriber, as its user calls it.",
    "batch": "Which batch, as its answer says.",
    "webhook": "The webhook, as its user calls it.",
    "client": "The client, as the topic's report calls it.",
    "server": "The server's ID.",
}


def _operation(
    name: str, summary: str, answers: dict[str, Any], *parameters: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "parameters": list(parameters), "responses": answers, **more}


def _put() -> dict[str, Any]:
    key = _parameter(
        "Idempotency-Key", "header", "The request happens once, however often it is sent with this key.", _TEXT
    )
    message_key = _parameter("Pubsub-Key", "header", "The key of each message; %XX is a byte.", _TEXT)
    header = _parameter(
        "Pubsub-Header-NAME", "header", "The header NAME of each message, up to 16 of them; %XX is a byte.", _TEXT
    )
    bodies = {
        "description": "One message; or, as newline-delimited JSON, one message a line. With "
        f"{MESSAGES} each line is a MessageWanted: a message with a key and headers of its own. "
        "Content-Encoding may be gzip or deflate.",
        "required": True,
        "content": {"*/*": {}, "application/x-ndjson": {}, "application/jsonl": {}, MESSAGES: {}},
    }
    answers = {"201": _json("They are on the server's disk.", "Put"), **_problems(408, 409, 413, 415, 422)}
    return _operation("putMessages", "Put one message or many.", answers, key, message_key, header, requestBody=bodies)


def _peek() -> dict[str, Any]:
    most = {"type": "integer", "minimum": 1, "maximum": PEEK_RECORDS_MAX}
    parameters = (
        _query("after", "Those behind this position, -1 for the oldest; left out: the newest.", _TEXT),
        _query("max", "Messages at most [20].", most),
    )
    answers = {"200": _json("What the topic holds; nobody's position moves.", "Peeked"), **_problems(409)}
    return _operation("peek", "Look at messages without taking them.", answers, *parameters)


def _stream() -> dict[str, Any]:
    parameters = (
        _query("subscriber", "Whose messages.", _TEXT, required=True),
        _query("access_token", "The bearer token, where no header can be sent.", _TEXT),
        _parameter("Last-Event-ID", "header", "The last event that was seen; everything up to it is taken.", _TEXT),
    )
    events = {"description": "Server-sent events without end.", **_content("text/event-stream", _TEXT)}
    return _operation("stream", "Messages as they come.", {"200": events, **_problems(409)}, *parameters)


def _subscribers() -> dict[str, Any]:
    nothing = {"description": "Done."}
    batch = {
        **_json("The next batch; not confirmed, the next poll gets it again.", "Batch"),
        "headers": {"Link": {"description": "The confirmation, as rel=confirm.", "schema": _TEXT}},
    }
    wait = _query("wait", "Seconds until the answer is empty [0].", {"type": "number", "maximum": WAIT_SECONDS_MAX})
    made = {"201": _json("Subscribed.", "Subscribed"), "200": _json("It was already.", "Subscribed")}
    fresh = _query("fresh", "Begin at the end, and drop what waits [false].", {"type": "boolean"})
    base = "/topics/{topic}/subscribers/{subscriber}"
    return {
        base: {
            "put": _operation(
                "subscribe", "Receive what is put from now on, or go on with what waits under this name.",
                {**made, **_problems(409)}, fresh,
            ),
            "get": _operation(
                "getSubscriber", "Where it stands.", {"200": _json("It.", "Subscriber"), **_problems(409)}
            ),
            "delete": _operation("unsubscribe", "Receive nothing more.", {"204": nothing, **_problems(409)}),
        },
        f"{base}/messages": {
            "get": _operation(
                "poll", "The next batch, waited for.",
                {"200": batch, "204": {"description": "Nothing came."}, **_problems(409)}, _MAX, wait,
            ),
        },
        f"{base}/batches/{{batch}}": {
            "delete": _operation("confirm", "Take a batch; once more is fine.", {"204": nothing, **_problems(409)}),
        },
        f"{base}/dead-letters": {
            "get": _operation(
                "listLosses", "What it was never handed.",
                {"200": _json("They.", "DeadLetters"), **_problems(409)}, _AFTER, _MAX, _BEGINNINGS,
            ),
        },
    }  # fmt: skip


def _webhooks() -> dict[str, Any]:
    base = "/topics/{topic}/webhooks"
    one = f"{base}/{{webhook}}"
    made = {"201": _json("Made.", "Webhook"), "200": _json("Changed.", "Webhook")}
    wanted = {"required": True, **_content(_JSON, ref("WebhookWanted"))}
    return {
        base: {"get": _operation("listWebhooks", "Webhooks.", {"200": _json("They.", "Webhooks"), **_problems()})},
        one: {
            "put": _operation(
                "putWebhook", "Deliver each message to a URL.", {**made, **_problems(408, 409, 413, 415)},
                requestBody=wanted,
            ),
            "get": _operation("getWebhook", "How it does.", {"200": _json("It.", "Webhook"), **_problems()}),
            "delete": _operation("deleteWebhook", "End it.", {"204": {"description": "Done."}, **_problems(409)}),
        },
        f"{one}/dead-letters": {
            "get": _operation(
                "listDeadLetters", "What was given up.",
                {"200": _json("They.", "DeadLetters"), **_problems()}, _AFTER, _MAX, _BEGINNINGS,
            ),
        },
        f"{one}/retry": {
            "post": _operation(
                "retryWebhook", "Try what waits at once, and dead letters again.",
                {"200": _json("How many.", "Retried"), **_problems(409)},
            ),
        },
    }  # fmt: skip


def _views() -> dict[str, Any]:
    def view(name: str, summary: str, schema: str, *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        answers = {"200": _json("What there is.", schema), **_problems()}
        return {"get": _operation(name, summary, answers, *parameters, **more)}

    search = _query("search", "Only topics with this in their names.", _TEXT)
    after = _query("after", "The last topic that was seen.", _TEXT)
    sort = _query("sort", "The largest of this first [topic: by name].", {"enum": list(SORTS)})
    named = _query(
        "subscribers", "Of each topic so many subscribers, the slowest first [all].", {"type": "integer", "minimum": 0}
    )
    text = {"200": {"description": "Prometheus's text format.", **_content("text/plain", _TEXT)}, **_problems()}
    return {
        "/topics": view("listTopics", "Topics, some at a time.", "Topics", search, after, _MAX, sort, named),
        "/topics/{topic}": view("getTopic", "One topic.", "Topic", named),
        "/servers": view("listServers", "Servers.", "Servers"),
        "/proxies": view("listProxies", "Proxies.", "Proxies"),
        "/metrics": {"get": _operation("metrics", "Metrics of the gateway and the cluster.", text)},
        "/livez": view("alive", "Whether the process serves.", "Alive", security=[]),
        "/readyz": view("ready", "Whether the gateway can do its work.", "Ready", security=[]),
        **_page(),
        "/openapi.json": view("describe", "This document.", "Document", security=[]),
    }


def _operations() -> dict[str, Any]:
    wanted = {"required": True, **_content(_JSON, ref("MoveWanted"))}

    def done(name: str, summary: str, schema: str, **more: Any) -> dict[str, Any]:
        return _operation(name, summary, {"200": _json("Done.", schema), **_problems(408, 409, 413, 415)}, **more)

    return {
        "/topics/{topic}/move": {"post": done("move", "Move a topic to a server.", "Moved", requestBody=wanted)},
        "/topics/{topic}/clients/{client}": {
            "delete": done("endSubscription", "End the subscription of a client, any one's.", "Unsubscribed"),
        },
        "/servers/{server}/drain": {
            "put": done("drain", "Move a server's topics, and give it no more.", "Drained"),
            "delete": done("stopDraining", "Let a server take topics again.", "Drained"),
        },
    }


def _page() -> dict[str, Any]:
    token = _query("access_token", "The bearer token, where no header can be sent.", _TEXT)
    events = {"description": "Server-sent events without end.", **_content("text/event-stream", _TEXT)}
    found: dict[str, Any] = {
        "/live": {"get": _operation("live", "What the page shows.", {"200": events, **_problems()}, token)}
    }
    scripts = [(f"/{name}.js", "text/javascript") for name in ("page", "asking", "draw", "overview", "topic")]
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), *scripts):
        answers = {"200": {"description": "It.", **_content(kind, _TEXT)}, **_problems()}
        name = "".join(part.title() for part in path.removeprefix("/").split(".")) or "Html"
        found[path] = {"get": _operation(f"file{name}", "A file of the page.", answers, security=[])}
    return found


def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {
        "/topics/{topic}/messages": {"post": _put(), "get": _peek()},
        **_subscribers(),
        "/topics/{topic}/stream": {"get": _stream()},
        **_webhooks(),
        **_views(),
        **_operations(),
    }
    for path, item in paths.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        if names:
            item["parameters"] = [_parameter(name, "path", _PLACES[name], _TEXT, required=True) for name in names]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pubsub gateway",
            "version": "1",
            "description": "Durable, exactly-once publish/subscribe over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def queries() -> dict[tuple[str, str], frozenset[str]]:
    """The parameters that a query may have, of each method and path."""
    return {
        (method.upper(), path): frozenset(one["name"] for one in operation["parameters"] if one["in"] == "query")
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


def encoded() -> bytes:
    """The document as JSON."""
    return json.dumps(document(), separators=(",", ":")).encode()
