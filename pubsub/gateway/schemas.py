"""The shapes of what the gateway answers, as JSON Schema (draft 2020-12, which OpenAPI 3.1 takes)."""

from __future__ import annotations

from typing import Any, Final

from pubsub.gateway.problems import PREFIX, TITLES

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TRUE: Final[Schema] = {"const": True}
ANYTHING: Final[Schema] = {"type": "object"}


def ref(name: str) -> Schema:
    """One of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def listed(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def closed(properties: dict[str, Schema], optional: frozenset[str] = frozenset()) -> Schema:
    """An object with these properties and no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": STRING}

_WANTED: Final = {
    **closed(
        {
            "body": STRING,
            "body_base64": {**STRING, "contentEncoding": "base64"},
            "key": STRING,
            "key_base64": {**STRING, "contentEncoding": "base64"},
            "headers": _TEXTS,
            "headers_base64": _TEXTS,
        },
        frozenset({"body", "body_base64", "key", "key_base64", "headers", "headers_base64"}),
    ),
    "oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}],
    "not": {"required": ["key", "key_base64"]},
}

_OF_LETTERS: Final = ("number", "attempts", "error", "failed_at")

_MESSAGE: Final = closed(
    {
        "id": {**STRING, "description": "STORE-COUNTER, the same wherever the message appears."},
        "position": {**STRING, "description": "Its place in the topic, log.offset."},
        "publisher": STRING,
        "counter": {**STRING, "description": "The publisher's number of it; beyond what JavaScript counts to."},
        "stamp": {**COUNT, "description": "When the server took it, microseconds since 1970."},
        "doubtful": {"type": "boolean", "description": "True: a lost state directory may have processed it."},
        "key": STRING,
        "key_base64": STRING,
        "headers": {**_TEXTS, "description": "Its headers, those that are UTF-8."},
        "headers_base64": {**_TEXTS, "description": "Those that are not."},
        "body": {**STRING, "description": "The message, where it is UTF-8."},
        "body_base64": {**STRING, "description": "The message, where it is not."},
        "number": {**COUNT, "description": "Of a dead letter: its place."},
        "attempts": {**COUNT, "description": "Of a dead letter: how often it was tried."},
        "error": {**STRING, "description": "Of a dead letter: how the last try failed, or why there is none."},
        "failed_at": {**COUNT, "description": "Of a dead letter: when, microseconds since 1970."},
        "bytes": {**COUNT, "description": "Of the whole body, where beginnings were asked for."},
        "cut": {**listed({"enum": ["key", "body"]}), "description": "Of what only the beginning is shown."},
    },
    frozenset(
        {
            "key",
            "key_base64",
            "headers",
            "headers_base64",
            "body",
            "body_base64",
            *_OF_LETTERS,
            "bytes",
            "cut",
            "doubtful",
        }
    ),
)

_PEEKED: Final = closed(
    {name: schema for name, schema in _MESSAGE["properties"].items() if name not in {*_OF_LETTERS, "doubtful"}},
    frozenset({"key", "key_base64", "headers", "headers_base64", "body", "body_base64"}),
)

_LOST: Final = closed(
    {
        "id": STRING,
        "lost": {**STRING, "description": "Messages at these positions are lost, and why."},
        "position": STRING,
        "number": COUNT,
        "attempts": COUNT,
        "error": STRING,
        "failed_at": COUNT,
    },
    frozenset(_OF_LETTERS),
)

_OLDEST: Final[Schema] = {
    "type": ["number", "null"],
    "description": "Seconds since the oldest message that is not acknowledged was put; null where nothing waits.",
}

_FIGURE: Final[Schema] = {"type": ["integer", "null"], "minimum": 0, "description": "Null: not known."}

_TOPIC: Final = closed(
    {
        "topic": STRING,
        "owners": listed(STRING),
        "others": listed(STRING),
        "whole": {"type": ["boolean", "null"], "description": "One server holds all of it; null: it does not answer."},
        "unknown_seconds": {
            "type": ["number", "null"],
            "description": "Since when its server does not answer: then its figures are null. Null: they are known.",
        },
        "last_known": {"oneOf": [{"type": "null"}, ref("LastKnown")]},
        "records": _FIGURE,
        "bytes": _FIGURE,
        "backlog": _FIGURE,
        "puts": {"type": ["number", "null"], "description": "Messages put a second; null: not known yet."},
        "deliveries": {"type": ["number", "null"], "description": "Messages taken a second, by all subscribers."},
        "held_by": {"type": ["string", "null"], "description": "The client with the largest backlog."},
        "oldest_unacknowledged_seconds": _OLDEST,
        "subscribers": {
            "type": ["array", "null"],
            "items": closed(
                {
                    "client": STRING,
                    "waiting": COUNT,
                    "polling": {"type": "boolean"},
                    "oldest_unacknowledged_seconds": _OLDEST,
                }
            ),
        },
        "subscribers_total": {**_FIGURE, "description": "How many there are, listed or not; null: not known."},
    }
)

_WEBHOOK: Final = closed(
    {
        "topic": STRING,
        "name": STRING,
        "url": {**STRING, "description": "Where; *** stands for user and password, and for the query."},
        "secrets": {**COUNT, "description": "How many sign."},
        "secret": {**STRING, "description": "The secret that was made, shown this once."},
        "state": {"enum": ["active", "ended"]},
        "reason": {**STRING, "description": "Why nothing is delivered at present; empty where all is well."},
        "waiting": COUNT,
        "dead_letters": {"type": ["integer", "null"]},
        "last_failure": {"oneOf": [{"type": "null"}, ref("Failure")]},
        "delivered": COUNT,
        "failed": COUNT,
    },
    frozenset({"secret"}),
)

_PART: Final[Schema] = {
    "type": "object",
    "properties": {
        "address": STRING,
        "id": STRING,
        "alive": {"type": "boolean"},
        "answered": {"type": "boolean"},
        "unheard_seconds": {"type": ["number", "null"], "description": "Since when no proxy hears a server."},
        "last_known": {"type": ["object", "null"], "description": "What such a server had: topics, records."},
        "reason": STRING,
        "report": {"type": ["object", "null"], "description": "What the process says of itself."},
    },
    "required": ["answered", "reason", "report"],
    "additionalProperties": False,
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": closed(
        {
            "type": {"enum": [PREFIX + name for name in TITLES]},
            "title": STRING,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": STRING,
        }
    ),
    "Put": closed(
        {
            "topic": STRING,
            "count": COUNT,
            "id": {**STRING, "description": "Of a single message."},
            "publisher": STRING,
            "ids": listed(closed({"first": STRING, "last": STRING, "count": COUNT})),
        },
        frozenset({"id"}),
    ),
    "Peeked": closed(
        {
            "topic": STRING,
            "held": {**COUNT, "description": "Messages that the topic holds."},
            "messages": listed(_PEEKED),
            "next": {"type": ["string", "null"], "description": "`after` of the next page."},
        }
    ),
    "Message": _MESSAGE,
    "MessageWanted": _WANTED,
    "Lost": _LOST,
    "Batch": closed(
        {
            "topic": STRING,
            "subscriber": STRING,
            "confirm": {**STRING, "description": "The path whose DELETE takes the batch."},
            "messages": listed({"oneOf": [ref("Message"), ref("Lost")]}),
        }
    ),
    "Subscribed": closed({"topic": STRING, "subscriber": STRING, "client": STRING}),
    "Subscriber": closed(
        {
            "topic": STRING,
            "subscriber": STRING,
            "client": STRING,
            "taken": COUNT,
            "confirmed": COUNT,
            "open_batch": {"type": ["string", "null"], "description": "The confirmation of the batch that is open."},
            "dead_letters": {
                **COUNT,
                "description": "Ranges of messages that it was never handed, since they are lost.",
            },
        }
    ),
    "Webhook": _WEBHOOK,
    "Failure": closed(
        {
            "id": {**STRING, "description": "The message's."},
            "error": {**STRING, "description": "The receiver's status, or why there was none."},
            "attempts": {**COUNT, "description": "How often it was tried."},
            "failed_at": {**COUNT, "description": "Microseconds since 1970."},
        },
        frozenset({"failed_at"}),
    ),
    "Webhooks": closed({"webhooks": listed(ref("Webhook"))}),
    "WebhookWanted": closed(
        {
            "url": {**STRING, "maxLength": 2048},
            "secrets": {**listed({**STRING, "pattern": "^whsec_"}), "minItems": 1, "maxItems": 2},
        },
        frozenset({"secrets"}),
    ),
    "DeadLetters": closed(
        {
            "dead_letters": listed({"oneOf": [ref("Message"), ref("Lost")]}),
            "next": {"type": ["integer", "null"], "description": "`after` of the next page."},
        }
    ),
    "Retried": closed({"retried": COUNT}),
    "Topic": _TOPIC,
    "LastKnown": closed(
        {
            "seconds_ago": {"type": "number"},
            "records": COUNT,
            "bytes": COUNT,
            "backlog": COUNT,
            "oldest_unacknowledged_seconds": _OLDEST,
            "subscribers": COUNT,
        }
    ),
    "Topics": closed(
        {
            "topics": listed(ref("Topic")),
            "total": COUNT,
            "next": {"type": ["string", "null"], "description": "`after` of the next page."},
        }
    ),
    "Servers": closed({"servers": listed(_PART), "standbys": listed(ANYTHING), "warnings": listed(STRING)}),
    "Proxies": closed({"proxies": listed(_PART), "warnings": listed(STRING)}),
    "MoveWanted": closed({"to": {**STRING, "description": "The server's ID."}}),
    "Moved": closed({"topic": STRING, "from": STRING, "to": STRING, "moved": {"type": "boolean"}}),
    "Unsubscribed": closed({"topic": STRING, "client": STRING, "given_up": COUNT}),
    "Drained": closed({"server": STRING, "draining": {"type": "boolean"}, "moved": COUNT}),
    "Alive": closed({"alive": TRUE}),
    "Ready": closed({"ready": TRUE}),
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
}
