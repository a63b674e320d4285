"""No field of a message can be forgotten: each travels, by itself and with all the others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest

from pubsub.protocol import decode, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.group_bodies import Range, Say
from pubsub.protocol.messages import Message, Outcome
from pubsub.protocol.names import Position
from pubsub.protocol.pattern_table import PatternRow
from pubsub.protocol.register import View, VoteOutcome
from pubsub.protocol.standby import EntryId

HEX = "abcdefabcdefabcd"
"""A hex number that is an ID, a topic, a word and an action as well."""

VIEW = View(7, HEX, "tcp://h:1", (HEX,), (HEX,))
SAMPLES: dict[Any, Any] = {
    View: VIEW,
    tuple[PatternRow, ...] | None: (PatternRow("s1", "orders.>", 4, True, 7),),
    tuple[Deletion, ...] | None: (Deletion("orders", 7),),
    View | None: VIEW,
    VoteOutcome: VoteOutcome.REPORTED,
    Say: Say(done=(Range(HEX, 1, 4, 2),)),
    EntryId: EntryId(4, 7),
    str: HEX,
    Outcome: Outcome.LOST,
    Position: (HEX, 3),
    Position | None: (HEX, 3),
    Buffer: b"body",
    dict[str, str] | None: {"t": HEX},
    dict[str, int] | None: {HEX: 4},
}
NAMED = {
    "start": "last:7",
    "stores": f"{HEX}.1.s1",
    "gone": f"{HEX}.1.",
    "kind": "takeover",
    "what": "dead",
    "on_lost": "redeliver",
}
MODES = {("Subscribe", "group"): "keyed", ("Group", "mode"): "keyed"}
STEPS = {"Copy": "begin", "Repair": "batch"}
KINDS = get_args(Message)


def sample(kind: type, name: str, default: Any) -> Any:
    """A value for a field that is not its default; integers are 1, which a flag may be too."""
    hint = get_type_hints(kind)[name]
    if hint is int:
        return 2 if default == 1 else 1
    if name == "step" and kind.__name__ in STEPS:
        return STEPS[kind.__name__]
    if (kind.__name__, name) in MODES:
        return MODES[kind.__name__, name]
    assert name in NAMED or hint in SAMPLES, f"add a sample for {kind.__name__}.{name}, which is {hint}"
    return NAMED[name] if name in NAMED else SAMPLES[hint]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_message_travels(kind: type) -> None:
    samples = {one.name: sample(kind, one.name, one.default) for one in fields(kind)}
    needed = {one.name: samples[one.name] for one in fields(kind) if one.default is MISSING}
    full = kind(**samples)
    assert decode(*encode(full)) == full
    for name in samples.keys() - needed.keys():
        message = kind(**needed, **{name: samples[name]})
        assert message != kind(**needed)
        assert getattr(decode(*encode(message)), name) == samples[name], name
