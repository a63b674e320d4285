"""The gateway's OpenAPI 3.1 document: every path, method, status and schema. Tests compare every response with it."""

from __future__ import annotations

import json
from typing import Any, Final

from pubsub.client.starts import FORM
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
    found = {"description": "The error.", **_content(PROBLEM, ref("Problem"))}
    return {str(status): found for status in sorted({*_COMMON, *statuses})}


def _parameter(name: str, where: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": text, "required": required, "schema": schema}


def _query(name: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return _parameter(name, "query", text, schema, required=required)


_MAX: Final = _query(
    "max", f"Largest number of items [{POLL_RECORDS}].", {"type": "integer", "minimum": 1, "maximum": POLL_RECORDS_MAX}
)
_AFTER: Final = _query("after", "`number` of the last dead letter received.", {"type": "integer", "minimum": 0})
_BEGINNINGS: Final = _query("beginnings", "Cut large keys and bodies [false].", {"type": "boolean"})
_PLACES: Final = {
    "topic": "Name of the topic; write a slash as %2F.",
    "family": "Name of the topic, or a pattern such as orders.*; write a slash as %2F, and > as %3E.",
    "subscriber": "Name of the subscriber.",
    "batch": "Number of the batch, from its `confirm`.",
    "webhook": "Name of the webhook.",
    "key": "The key; each byte that is no letter or digit as %XX.",
    "client": "ID of the client, as in the topic's `subscribers`.",
    "server": "The server's ID.",
}


def _operation(
    name: str, summary: str, answers: dict[str, Any], *parameters: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "parameters": list(parameters), "responses": answers, **more}


def _put() -> dict[str, Any]:
    key = _parameter(
        "Idempotency-Key", "header", "All requests with the same key have one effect and one response.", _TEXT
    )
    message_key = _parameter("Pubsub-Key", "header", "The key of each message; %XX is a byte.", _TEXT)
    header = _parameter(
        "Pubsub-Header-NAME", "header", "The header NAME of each message, up to 16 headers; %XX is a byte.", _TEXT
    )
    bodies = {
        "description": "One message; or, as newline-delimited JSON, one message per line. With "
        f"{MESSAGES} each line is a MessageWanted: a message with its own key and headers. "
        "Content-Encoding may be gzip or deflate.",
        "required": True,
        "content": {"*/*": {}, "application/x-ndjson": {}, "application/jsonl": {}, MESSAGES: {}},
    }
    answers = {"201": _json("The messages are on the server's disk.", "Put"), **_problems(408, 409, 413, 415, 422)}
    delay = _query("delay", "Seconds after which the messages are delivered, up to 90 days [0].", {"type": "number"})
    moment = _query(
        "deliver_at", "In place of delay, the time of the delivery.", {"type": "string", "format": "date-time"}
    )
    ttl = _query("ttl", "Seconds after which subscribers pass the messages over [never].", {"type": "number"})
    parameters = key, message_key, header, delay, moment, ttl
    return _operation("putMessages", "Put messages.", answers, *parameters, requestBody=bodies)


SEARCH: Final = (
    _query("key", "Only messages with this text in their key.", _TEXT),
    _query("text", "Only messages with this text in their body.", _TEXT),
    _query("since", "Only messages with this timestamp or a later one.", {"type": "integer", "minimum": 0}),
    _query("until", "Only messages with this timestamp or an earlier one.", {"type": "integer", "minimum": 0}),
)


def _peek() -> dict[str, Any]:
    most = {"type": "integer", "minimum": 1, "maximum": PEEK_RECORDS_MAX}
    parameters = (
        _query("after", "Position to start after, -1 for the oldest message [the newest messages].", _TEXT),
        _query("max", "Largest number of messages to look at [20].", most),
        *SEARCH,
    )
    answers = {"200": _json("Stored messages; no subscriber's position changes.", "Peeked"), **_problems(409)}
    return _operation("peek", "Show stored messages.", answers, *parameters)


_START: Final = _query("start", f"{FORM[0].upper()}{FORM[1:]} [earliest].", _TEXT)
_SEEK: Final = {"required": True, **_content(_JSON, ref("SeekWanted"))}


def _looking_back() -> dict[str, Any]:
    stop = _query(
        "stop", "now, a time or an age: before messages of that time; or the ID of the last message [the end].", _TEXT
    )
    after = _query("after", "`next` of the previous page; repeat stop, and leave start out.", _TEXT)
    page = {"200": _json("Stored messages; no subscriber's position changes.", "Records"), **_problems(409, 410, 422)}
    found = {"200": _json("The times.", "Times"), **_problems(422)}
    key = _query("after", "`next` of the previous page: a key, as %XX.", _TEXT)
    values = {"200": _json("The last message of each key, in the order of the keys.", "Table"), **_problems(413, 422)}
    value = {"200": _json("The last message of the key.", "Value"), **_problems(413, 422)}
    return {
        "/topics/{topic}/records": {
            "get": _operation("readRecords", "Read messages from a start on, by page.", page, _START, stop, _MAX, after)
        },
        "/topics/{topic}/times": {
            "get": _operation("getTimes", "Show how far a topic can be looked back into.", found)
        },
        "/topics/{topic}/table": {
            "get": _operation("readTable", "Read a topic as a table.", values, _MAX, key, *SEARCH)
        },
        "/topics/{topic}/table/{key}": {"get": _operation("readKey", "Read the last message of a key.", value)},
    }


def _seek(name: str, summary: str) -> dict[str, Any]:
    answers = {"200": _json("Moved.", "Sought"), **_problems(408, 409, 410, 413, 415, 422)}
    return {"post": _operation(name, summary, answers, requestBody=_SEEK)}


def _stream() -> dict[str, Any]:
    parameters = (
        _query("subscriber", "Name of the subscriber.", _TEXT, required=True),
        _query("access_token", "The bearer token, if the client cannot send the header.", _TEXT),
        _parameter("Last-Event-ID", "header", "ID of the last event received; confirms all up to it.", _TEXT),
    )
    events = {"description": "Endless server-sent events.", **_content("text/event-stream", _TEXT)}
    return _operation("stream", "Receive messages as events.", {"200": events, **_problems(409)}, *parameters)


def _subscribers() -> dict[str, Any]:
    nothing = {"description": "Done."}
    batch = {
        **_json("The next batch; without a confirmation the next poll returns it again.", "Batch"),
        "headers": {"Link": {"description": "Path that confirms the batch, as rel=confirm.", "schema": _TEXT}},
    }
    wait = _query("wait", "Seconds to wait for a message [0].", {"type": "number", "maximum": WAIT_SECONDS_MAX})
    made = {"201": _json("Subscribed.", "Subscribed"), "200": _json("Subscribed before.", "Subscribed")}
    fresh = _query("fresh", "Drop the subscription and its backlog, and begin at start [false].", {"type": "boolean"})
    start = _query("start", f"Where a new subscription begins: {FORM} [latest].", _TEXT)
    base = "/topics/{topic}/subscribers/{subscriber}"
    return {
        base: {
            "put": _operation(
                "subscribe", "Subscribe, or continue an existing subscription of this name.",
                {**made, **_problems(409, 410, 422)}, fresh, start,
            ),
            "get": _operation(
                "getSubscriber", "Show a subscriber.", {"200": _json("The subscriber.", "Subscriber"), **_problems(409)}
            ),
            "delete": _operation("unsubscribe", "Unsubscribe.", {"204": nothing, **_problems(409)}),
        },
        f"{base}/seek": _seek("seek", "Move a subscriber of yours to a start."),
        f"{base}/messages": {
            "get": _operation(
                "poll", "Wait for the next batch.",
                {"200": batch, "204": {"description": "No message arrived."}, **_problems(409)}, _MAX, wait,
            ),
        },
        f"{base}/batches/{{batch}}": {
            "delete": _operation("confirm", "Confirm a batch; may be repeated.", {"204": nothing, **_problems(409)}),
        },
        f"{base}/dead-letters": {
            "get": _operation(
                "listLosses", "List lost messages of a subscriber.",
                {"200": _json("The losses.", "DeadLetters"), **_problems(409)}, _AFTER, _MAX, _BEGINNINGS,
            ),
        },
    }  # fmt: skip


def _webhooks() -> dict[str, Any]:
    base = "/topics/{topic}/webhooks"
    one = f"{base}/{{webhook}}"
    made = {"201": _json("Created.", "Webhook"), "200": _json("Changed.", "Webhook")}
    wanted = {"required": True, **_content(_JSON, ref("WebhookWanted"))}
    age = _query("age", "Least age in seconds; required.", {"type": "number", "minimum": 0})
    return {
        base: {
            "get": _operation(
                "listWebhooks", "List webhooks of a topic.", {"200": _json("The webhooks.", "Webhooks"), **_problems()}
            )
        },
        one: {
            "put": _operation(
                "putWebhook", "Create or change a webhook.", {**made, **_problems(408, 409, 413, 415)},
                requestBody=wanted,
            ),
            "get": _operation("getWebhook", "Show a webhook.", {"200": _json("Its state.", "Webhook"), **_problems()}),
            "delete": _operation(
                "deleteWebhook", "Remove a webhook.", {"204": {"description": "Done."}, **_problems(409)}
            ),
        },
        f"{one}/dead-letters": {
            "get": _operation(
                "listDeadLetters", "List dead letters of a webhook.",
                {"200": _json("The dead letters.", "DeadLetters"), **_problems()}, _AFTER, _MAX, _BEGINNINGS,
            ),
            "delete": _operation(
                "purgeDeadLetters", "Drop the dead letters of a webhook that are older.",
                {"200": _json("Number of dead letters.", "LettersPurged"), **_problems(409)}, age,
            ),
        },
        f"{one}/redrive": {
            "post": _operation(
                "redriveWebhook", "Deliver waiting messages now, and dead letters again.",
                {"200": _json("Number of messages.", "Redriven"), **_problems(409)},
            ),
        },
        f"{one}/retry": {
            "post": _operation(
                "retryWebhook", "The same as redrive, under its earlier name.",
                {"200": _json("Number of messages.", "Retried"), **_problems(409)},
            ),
        },
    }  # fmt: skip


def _views() -> dict[str, Any]:
    def view(name: str, summary: str, schema: str, *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        answers = {"200": _json("The state at present.", schema), **_problems()}
        return {"get": _operation(name, summary, answers, *parameters, **more)}

    search = _query("search", "Only topics with this text in their names.", _TEXT)
    after = _query("after", "`next` of the previous page.", _TEXT)
    sort = _query("sort", "Order, the largest first [topic: by name].", {"enum": list(SORTS)})
    named = _query(
        "subscribers", "Number of subscribers per topic, the slowest first [all].", {"type": "integer", "minimum": 0}
    )
    matched = _query("topic", "Only patterns that match this topic.", _TEXT)
    text = {"200": {"description": "Prometheus's text format.", **_content("text/plain", _TEXT)}, **_problems()}
    return {
        "/topics": view("listTopics", "List topics, by page.", "Topics", search, after, _MAX, sort, named),
        "/topics/{topic}": view("getTopic", "Show a topic.", "Topic", named) | _create() | _delete(),
        "/patterns": view("listPatterns", "List subscriptions to patterns.", "Families", matched),
        "/servers": view("listServers", "List servers.", "Servers"),
        "/proxies": view("listProxies", "List proxies.", "Proxies"),
        "/metrics": {"get": _operation("metrics", "Metrics of the gateway and the cluster.", text)},
        "/livez": view("alive", "200 while the process serves.", "Alive", security=[]),
        "/readyz": view("ready", "200 while a proxy answers.", "Ready", security=[]),
        **_page(),
        "/openapi.json": view("describe", "This document.", "Document", security=[]),
    }


def _delete() -> dict[str, Any]:
    force = _query("force", "Delete a topic that has subscribers, or no live server [false].", {"type": "boolean"})
    found = {"200": _json("Deleted.", "TopicDeleted"), **_problems(408, 409)}
    return {"delete": _operation("deleteTopic", "Delete a topic with all its messages.", found, force)}


def _create() -> dict[str, Any]:
    wanted = {"required": False, **_content(_JSON, ref("SettingsWanted"))}
    made = {"201": _json("Created.", "TopicSettings"), "200": _json("It exists with these settings.", "TopicSettings")}
    problems = _problems(408, 409, 413, 415, 422)
    return {"put": _operation("createTopic", "Create a topic.", {**made, **problems}, requestBody=wanted)}


def _settings() -> dict[str, Any]:
    tag = {"ETag": {"description": "The version, in quotes.", "schema": _TEXT}}
    wanted = {"required": True, **_content(_JSON, ref("SettingsWanted"))}
    match = _parameter("If-Match", "header", "Change the settings only if they have this ETag.", _TEXT)
    found = _json("The settings in force.", "TopicSettings") | {"headers": tag}
    problems = _problems(408, 409, 412, 413, 415, 422)
    problems["412"] = problems["412"] | {"headers": tag}
    return {
        "get": _operation("getSettings", "Show the settings of a topic.", {"200": found, **_problems(422)}),
        "put": _operation(
            "putSettings", "Change settings of a topic, or create it with them.", {"200": found, **problems}, match,
            requestBody=wanted,
        ),
    }  # fmt: skip


def _operations() -> dict[str, Any]:
    wanted = {"required": True, **_content(_JSON, ref("MoveWanted"))}
    purging = {"required": True, **_content(_JSON, ref("PurgeWanted"))}

    def done(name: str, summary: str, schema: str, **more: Any) -> dict[str, Any]:
        return _operation(name, summary, {"200": _json("Done.", schema), **_problems(408, 409, 413, 415)}, **more)

    return {
        "/topics/{topic}/move": {"post": done("move", "Move a topic to another server.", "Moved", requestBody=wanted)},
        "/topics/{topic}/purge": {
            "post": done("purge", "Delete the stored messages of a topic.", "Purged", requestBody=purging),
        },
        "/topics/{topic}/settings": _settings(),
        "/topics/{topic}/clients/{client}": {
            "delete": done("endSubscription", "End the subscription of any client.", "Unsubscribed"),
        },
        "/topics/{topic}/clients/{client}/seek": _seek("seekClient", "Move a subscriber of any user to a start."),
        "/servers/{server}/drain": {
            "put": done("drain", "Move a server's topics away, and assign no new ones to it.", "Drained"),
            "delete": done("stopDraining", "Assign topics to the server again.", "Drained"),
        },
    }


def _page() -> dict[str, Any]:
    token = _query("access_token", "The bearer token, if the client cannot send the header.", _TEXT)
    events = {"description": "Endless server-sent events.", **_content("text/event-stream", _TEXT)}
    found: dict[str, Any] = {
        "/live": {"get": _operation("live", "Live data of the page.", {"200": events, **_problems()}, token)}
    }
    names = ("page", "asking", "draw", "overview", "topic", "settings", "objects", "back", "table")
    scripts = [(f"/{name}.js", "text/javascript") for name in names]
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), *scripts):
        answers = {"200": {"description": "The file.", **_content(kind, _TEXT)}, **_problems()}
        name = "".join(part.title() for part in path.removeprefix("/").split(".")) or "Html"
        found[path] = {"get": _operation(f"file{name}", "A file of the page.", answers, security=[])}
    return found


def _takes_patterns(path: str) -> bool:
    return path.split("/")[3:4] in (["subscribers"], ["stream"], ["webhooks"]) and not path.endswith("/seek")


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/topics/{topic}/messages": {"post": _put(), "get": _peek()},
        **_looking_back(),
        **_subscribers(),
        "/topics/{topic}/stream": {"get": _stream()},
        **_webhooks(),
        **_views(),
        **_operations(),
    }
    for path, item in paths.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        if names:
            texts = _PLACES | ({"topic": _PLACES["family"]} if _takes_patterns(path) else {})
            item["parameters"] = [_parameter(name, "path", texts[name], _TEXT, required=True) for name in names]
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
    return {
        (method.upper(), path): frozenset(one["name"] for one in operation["parameters"] if one["in"] == "query")
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }


def encoded() -> bytes:
    return json.dumps(document(), separators=(",", ":")).encode()
