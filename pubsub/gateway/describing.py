"""Parts of the OpenAPI document: parameters, responses and operations."""

from __future__ import annotations

from typing import Any, Final

from pubsub.gateway.limits import POLL_RECORDS, POLL_RECORDS_MAX
from pubsub.gateway.shapes import Schema, ref
from pubsub.web.problems import MEDIA_TYPE as PROBLEM

JSON: Final = "application/json"
TEXT: Final[Schema] = {"type": "string"}
COMMON: Final = (400, 401, 403, 404, 405, 431, 500, 502, 503, 507)


def content(kind: str, schema: Schema) -> dict[str, Any]:
    return {"content": {kind: {"schema": schema}}}


def gives(text: str, name: str) -> dict[str, Any]:
    return {"description": text, **content(JSON, ref(name))}


def problems(*statuses: int) -> dict[str, Any]:
    found = {"description": "The error.", **content(PROBLEM, ref("Problem"))}
    return {str(status): found for status in sorted({*COMMON, *statuses})}


def parameter(name: str, where: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": text, "required": required, "schema": schema}


def query(name: str, text: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return parameter(name, "query", text, schema, required=required)


MAX: Final = query(
    "max", f"Largest number of items [{POLL_RECORDS}].", {"type": "integer", "minimum": 1, "maximum": POLL_RECORDS_MAX}
)


def operation(
    name: str, summary: str, answers: dict[str, Any], *parameters: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {"operationId": name, "summary": summary, "parameters": list(parameters), "responses": answers, **more}
