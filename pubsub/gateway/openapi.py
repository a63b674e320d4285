"""The gateway's OpenAPI 3.1 document: every path, method, status and schema. Tests compare every response with it."""

from __future__ import annotations

import json
from typing import Any, Final

from pubsub.client.starts import FORM
from pubsub.gateway.describing import (
    JSON,
    MAX,
    TEXT,
    content,
    gives,
    operation,
    parameter,
    problems,
    query,
)
from pubsub.gateway.group_openapi import groups
from pubsub.gateway.limits import PEEK_RECORDS_MAX, WAIT_SECONDS_MAX
from pubsub.gateway.schemas import SCHEMAS
from pubsub.gateway.shapes import ref
from pubsub.gateway.splitting import MESSAGES
from pubsub.monitoring.rows import SORTS

_AFTER: Final = query("after", "`number` of the last dead letter received.", {"type": "integer", "minimum": 0})
_BEGINNINGS: Final = query("beginnings", "Cut large keys and bodies [false].", {"type": "boolean"})
_PLACES: Final = {
    "topic": "Name of the topic; write a slash as %2F.",
    "family": "Name of the topic, or a pattern such as orders.*; write a slash as %2F, and > as %3E.",
    "subscriber": "Name of the subscriber.",
    "batch": "Number of the batch, from its `confirm`.",
    "group": "Name of the consumer group.",
    "member": "Name of the member.",
    "webhook": "Name of the webhook.",
    "key": "The key; each byte that is no letter or digit as %XX.",
    "client": "ID of the client, as in the topic's `subscribers`.",
    "server": "The server's ID.",
}


def _put() -> dict[str, Any]:
    key = parameter(
        "Idempotency-Key", "header", "All requests with the same key have one effect and one response.", TEXT
    )
    message_key = parameter("Pubsub-Key", "header", "The key of each message; %XX is a byte.", TEXT)
    header = parameter(
        "Pubsub-Header-NAME", "header", "The header NAME of each message, up to 16 headers; %XX is a byte.", TEXT
    )
    bodies = {
        "description": "One message; or, as newline-delimited JSON, one message per line. With "
        f"{MESSAGES} each line is a MessageWanted: a message with its own key and headers. "
        "Content-Encoding may be gzip or deflate.",
        "required": True,
        "content": {"*/*": {}, "application/x-ndjson": {}, "application/jsonl": {}, MESSAGES: {}},
    }
    answers = {"201": gives("The messages are on the server's disk.", "Put"), **problems(408, 409, 413, 415, 422)}
    delay = query("delay", "Seconds after which the messages are delivered, up to 90 days [0].", {"type": "number"})
    moment = query(
        "deliver_at", "In place of delay, the time of the delivery.", {"type": "string", "format": "date-time"}
    )
    ttl = query("ttl", "Seconds after which subscribers pass the messages over [never].", {"type": "number"})
    parameters = key, message_key, header, delay, moment, ttl
    return operation("putMessages", "Put messages.", answers, *parameters, requestBody=bodies)


SEARCH: Final = (
    query("key", "Only messages with this text in their key.", TEXT),
    query("text", "Only messages with this text in their body.", TEXT),
    query("since", "Only messages with this timestamp or a later one.", {"type": "integer", "minimum": 0}),
    query("until", "Only messages with this timestamp or an earlier one.", {"type": "integer", "minimum": 0}),
)


def _peek() -> dict[str, Any]:
    most = {"type": "integer", "minimum": 1, "maximum": PEEK_RECORDS_MAX}
    parameters = (
        query("after", "Position to start after, -1 for the oldest message [the newest messages].", TEXT),
        query("max", "Largest number of messages to look at [20].", most),
        *SEARCH,
    )
    answers = {"200": gives("Stored messages; no subscriber's position changes.", "Peeked"), **problems(409)}
    return operation("peek", "Show stored messages.", answers, *parameters)


_START: Final = query("start", f"{FORM[0].upper()}{FORM[1:]} [earliest].", TEXT)
_SEEK: Final = {"required": True, **content(JSON, ref("SeekWanted"))}


def _looking_back() -> dict[str, Any]:
    stop = query(
        "stop", "now, a time or an age: before messages of that time; or the ID of the last message [the end].", TEXT
    )
    after = query("after", "`next` of the previous page; repeat stop, and leave start out.", TEXT)
    page = {
        "200": gives("Stored messages; no subscriber's position changes.", "Records"),
        **problems(409, 410, 422),
    }
    found = {"200": gives("The times.", "Times"), **problems(422)}
    key = query("after", "`next` of the previous page: a key, as %XX.", TEXT)
    values = {
        "200": gives("The last message of each key, in the order of the keys.", "Table"),
        **problems(413, 422),
    }
    value = {"200": gives("The last message of the key.", "Value"), **problems(413, 422)}
    return {
        "/topics/{topic}/records": {
            "get": operation("readRecords", "Read messages from a start on, by page.", page, _START, stop, MAX, after)
        },
        "/topics/{topic}/times": {"get": operation("getTimes", "Show how far a topic can be looked back into.", found)},
        "/topics/{topic}/table": {"get": operation("readTable", "Read a topic as a table.", values, MAX, key, *SEARCH)},
        "/topics/{topic}/table/{key}": {"get": operation("readKey", "Read the last message of a key.", value)},
    }


def _seek(name: str, summary: str) -> dict[str, Any]:
    answers = {"200": gives("Moved.", "Sought"), **problems(408, 409, 410, 413, 415, 422)}
    return {"post": operation(name, summary, answers, requestBody=_SEEK)}


def _stream() -> dict[str, Any]:
    parameters = (
        query("subscriber", "Name of the subscriber.", TEXT, required=True),
        query("access_token", "The bearer token, if the client cannot send the header.", TEXT),
        parameter("Last-Event-ID", "header", "ID of the last event received; confirms all up to it.", TEXT),
    )
    events = {"description": "Endless server-sent events.", **content("text/event-stream", TEXT)}
    return operation("stream", "Receive messages as events.", {"200": events, **problems(409)}, *parameters)


def _subscribers() -> dict[str, Any]:
    nothing = {"description": "Done."}
    batch = {
        **gives("The next batch; without a confirmation the next poll returns it again.", "Batch"),
        "headers": {"Link": {"description": "Path that confirms the batch, as rel=confirm.", "schema": TEXT}},
    }
    wait = query("wait", "Seconds to wait for a message [0].", {"type": "number", "maximum": WAIT_SECONDS_MAX})
    made = {"201": gives("Subscribed.", "Subscribed"), "200": gives("Subscribed before.", "Subscribed")}
    fresh = query("fresh", "Drop the subscription and its backlog, and begin at start [false].", {"type": "boolean"})
    start = query("start", f"Where a new subscription begins: {FORM} [latest].", TEXT)
    base = "/topics/{topic}/subscribers/{subscriber}"
    return {
        base: {
            "put": operation(
                "subscribe", "Subscribe, or continue an existing subscription of this name.",
                {**made, **problems(409, 410, 422)}, fresh, start,
            ),
            "get": operation(
                "getSubscriber", "Show a subscriber.", {"200": gives("The subscriber.", "Subscriber"), **problems(409)}
            ),
            "delete": operation("unsubscribe", "Unsubscribe.", {"204": nothing, **problems(409)}),
        },
        f"{base}/seek": _seek("seek", "Move a subscriber of yours to a start."),
        f"{base}/messages": {
            "get": operation(
                "poll", "Wait for the next batch.",
                {"200": batch, "204": {"description": "No message arrived."}, **problems(409)}, MAX, wait,
            ),
        },
        f"{base}/batches/{{batch}}": {
            "delete": operation("confirm", "Confirm a batch; may be repeated.", {"204": nothing, **problems(409)}),
        },
        f"{base}/dead-letters": {
            "get": operation(
                "listLosses", "List lost messages of a subscriber.",
                {"200": gives("The losses.", "DeadLetters"), **problems(409)}, _AFTER, MAX, _BEGINNINGS,
            ),
        },
    }  # fmt: skip


def _webhooks() -> dict[str, Any]:
    base = "/topics/{topic}/webhooks"
    one = f"{base}/{{webhook}}"
    made = {"201": gives("Created.", "Webhook"), "200": gives("Changed.", "Webhook")}
    wanted = {"required": True, **content(JSON, ref("WebhookWanted"))}
    age = query("age", "Least age in seconds; required.", {"type": "number", "minimum": 0})
    return {
        base: {
            "get": operation(
                "listWebhooks", "List webhooks of a topic.", {"200": gives("The webhooks.", "Webhooks"), **problems()}
            )
        },
        one: {
            "put": operation(
                "putWebhook", "Create or change a webhook.", {**made, **problems(408, 409, 413, 415)},
                requestBody=wanted,
            ),
            "get": operation("getWebhook", "Show a webhook.", {"200": gives("Its state.", "Webhook"), **problems()}),
            "delete": operation(
                "deleteWebhook", "Remove a webhook.", {"204": {"description": "Done."}, **problems(409)}
            ),
        },
        f"{one}/dead-letters": {
            "get": operation(
                "listDeadLetters", "List dead letters of a webhook.",
                {"200": gives("The dead letters.", "DeadLetters"), **problems()}, _AFTER, MAX, _BEGINNINGS,
            ),
            "delete": operation(
                "purgeDeadLetters", "Drop the dead letters of a webhook that are older.",
                {"200": gives("Number of dead letters.", "LettersPurged"), **problems(409)}, age,
            ),
        },
        f"{one}/redrive": {
            "post": operation(
                "redriveWebhook", "Deliver waiting messages now, and dead letters again.",
                {"200": gives("Number of messages.", "Redriven"), **problems(409)},
            ),
        },
        f"{one}/retry": {
            "post": operation(
                "retryWebhook", "The same as redrive, under its earlier name.",
                {"200": gives("Number of messages.", "Retried"), **problems(409)},
            ),
        },
    }  # fmt: skip


def _views() -> dict[str, Any]:
    def view(name: str, summary: str, schema: str, *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        answers = {"200": gives("The state at present.", schema), **problems()}
        return {"get": operation(name, summary, answers, *parameters, **more)}

    search = query("search", "Only topics with this text in their names.", TEXT)
    after = query("after", "`next` of the previous page.", TEXT)
    sort = query("sort", "Order, the largest first [topic: by name].", {"enum": list(SORTS)})
    named = query(
        "subscribers", "Number of subscribers per topic, the slowest first [all].", {"type": "integer", "minimum": 0}
    )
    matched = query("topic", "Only patterns that match this topic.", TEXT)
    text = {"200": {"description": "Prometheus's text format.", **content("text/plain", TEXT)}, **problems()}
    return {
        "/topics": view("listTopics", "List topics, by page.", "Topics", search, after, MAX, sort, named),
        "/topics/{topic}": view("getTopic", "Show a topic.", "Topic", named) | _create() | _delete(),
        "/patterns": view("listPatterns", "List subscriptions to patterns.", "Families", matched),
        "/servers": view("listServers", "List servers.", "Servers"),
        "/proxies": view("listProxies", "List proxies.", "Proxies"),
        "/metrics": {"get": operation("metrics", "Metrics of the gateway and the cluster.", text)},
        "/livez": view("alive", "200 while the process serves.", "Alive", security=[]),
        "/readyz": view("ready", "200 while a proxy answers.", "Ready", security=[]),
        **_page(),
        "/openapi.json": view("describe", "This document.", "Document", security=[]),
    }


def _delete() -> dict[str, Any]:
    force = query("force", "Delete a topic that has subscribers, or no live server [false].", {"type": "boolean"})
    found = {"200": gives("Deleted.", "TopicDeleted"), **problems(408, 409)}
    return {"delete": operation("deleteTopic", "Delete a topic with all its messages.", found, force)}


def _create() -> dict[str, Any]:
    wanted = {"required": False, **content(JSON, ref("SettingsWanted"))}
    made = {
        "201": gives("Created.", "TopicSettings"),
        "200": gives("It exists with these settings.", "TopicSettings"),
    }
    errors = problems(408, 409, 413, 415, 422)
    return {"put": operation("createTopic", "Create a topic.", {**made, **errors}, requestBody=wanted)}


def _settings() -> dict[str, Any]:
    tag = {"ETag": {"description": "The version, in quotes.", "schema": TEXT}}
    wanted = {"required": True, **content(JSON, ref("SettingsWanted"))}
    match = parameter("If-Match", "header", "Change the settings only if they have this ETag.", TEXT)
    found = gives("The settings in force.", "TopicSettings") | {"headers": tag}
    errors = problems(408, 409, 412, 413, 415, 422)
    errors["412"] = errors["412"] | {"headers": tag}
    return {
        "get": operation("getSettings", "Show the settings of a topic.", {"200": found, **problems(422)}),
        "put": operation(
            "putSettings", "Change settings of a topic, or create it with them.", {"200": found, **errors}, match,
            requestBody=wanted,
        ),
    }  # fmt: skip


def _operations() -> dict[str, Any]:
    wanted = {"required": True, **content(JSON, ref("MoveWanted"))}
    purging = {"required": True, **content(JSON, ref("PurgeWanted"))}

    def done(name: str, summary: str, schema: str, **more: Any) -> dict[str, Any]:
        return operation(name, summary, {"200": gives("Done.", schema), **problems(408, 409, 413, 415)}, **more)

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
    token = query("access_token", "The bearer token, if the client cannot send the header.", TEXT)
    events = {"description": "Endless server-sent events.", **content("text/event-stream", TEXT)}
    found: dict[str, Any] = {
        "/live": {"get": operation("live", "Live data of the page.", {"200": events, **problems()}, token)}
    }
    names = ("page", "asking", "draw", "overview", "topic", "groups", "settings", "objects", "back", "table")
    scripts = [(f"/{name}.js", "text/javascript") for name in names]
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), *scripts):
        answers = {"200": {"description": "The file.", **content(kind, TEXT)}, **problems()}
        name = "".join(part.title() for part in path.removeprefix("/").split(".")) or "Html"
        found[path] = {"get": operation(f"file{name}", "A file of the page.", answers, security=[])}
    return found


def _takes_patterns(path: str) -> bool:
    return path.split("/")[3:4] in (["subscribers"], ["stream"], ["webhooks"]) and not path.endswith("/seek")


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/topics/{topic}/messages": {"post": _put(), "get": _peek()},
        **_looking_back(),
        **_subscribers(),
        "/topics/{topic}/stream": {"get": _stream()},
        **groups(),
        **_webhooks(),
        **_views(),
        **_operations(),
    }
    for path, item in paths.items():
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        if names:
            texts = _PLACES | ({"topic": _PLACES["family"]} if _takes_patterns(path) else {})
            item["parameters"] = [parameter(name, "path", texts[name], TEXT, required=True) for name in names]
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
