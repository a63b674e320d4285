"""What all shapes of requests and responses are made of."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, UnsetType

Schema = dict[str, Any]

REF: Final = "#/components/schemas/{name}"


def ref(name: str) -> Schema:
    return {"$ref": REF.format(name=name)}


Text = str | UnsetType
Flag = bool | UnsetType
Seconds = float | UnsetType | None
Texts = dict[str, str] | UnsetType
Base64 = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType
Anything = dict[str, Any] | None
Count = Annotated[int, Meta(ge=0)]
Figure = Annotated[Count | None, Meta(description="Null: unknown.")]
Cut = Annotated[list[Literal["key", "body"]], Meta(description="The fields that are cut.")]
Moment = Annotated[int, Meta(ge=0, description="Time of the failure, microseconds since 1970.")] | UnsetType
Secret = Annotated[str, Meta(pattern="^whsec_")]
Yes = Annotated[bool, Meta(extra_json_schema={"const": True})]
Oldest = Annotated[
    float | None,
    Meta(description="Age in seconds of the oldest unacknowledged message; null if there is none."),
]
Next = Annotated[str | None, Meta(description="`after` of the next page.")]
Number = Annotated[int, Meta(ge=0, description="Of a dead letter: its number, for `after`.")] | UnsetType
Tries = Annotated[int, Meta(ge=0, description="Of a dead letter: the number of tries.")] | UnsetType
Why = Annotated[str, Meta(description="Of a dead letter: the error of the last try, or of the loss.")] | UnsetType
Source = Annotated[str, Meta(description="Its topic, for a subscriber or webhook of a pattern.")] | UnsetType
Letters = list[Annotated[Any, Meta(extra_json_schema={"oneOf": [ref("Message"), ref("Lost")]})]]
"""A union that msgspec lacks: structs without a tag."""


class Shape(Struct, forbid_unknown_fields=True):
    """An object with exactly these fields; a field that is UNSET is left out."""
