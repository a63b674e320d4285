"""The bytes on the wire: each line of `golden.txt` is a message with its header and its body, as a release sent it.

A line that is there stays there: peers of that release send and expect these bytes. For a new message, or a new field,
`line` makes the lines to append.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import pytest

from pubsub.errors import DecodeError
from pubsub.protocol import (
    decode,
    deletions,
    encode,
    families,
    group_bodies,
    groups,
    messages,
    register,
    standby,
    topic_objects,
    transfers,
)
from pubsub.protocol.messages import Message

GOLDEN = Path(__file__).with_name("golden.txt")
NAMES = {
    **vars(register), **vars(standby), **vars(transfers), **vars(topic_objects), **vars(families),
    **vars(deletions), **vars(group_bodies), **vars(groups), **vars(messages)
}  # fmt: skip
ID, TOPIC, HEX = "A" * 64, "~" * 80, "f" * 16
NUMBER = 2**63 - 1


def literal(value: Any) -> str:
    return f"{type(value).__name__}({value.value!r})" if isinstance(value, StrEnum) else repr(value)


def line(message: Message) -> str:
    """The message as one line of `golden.txt`: its text in Python, header and body in hex."""
    head, body = encode(message)
    values = ", ".join(f"{one.name}={literal(getattr(message, one.name))}" for one in fields(message))
    return f"{type(message).__name__}({values})\t{head.hex()}\t{bytes(body).hex()}"


def golden() -> Iterator[tuple[Message, bytes, bytes]]:
    for text in GOLDEN.read_text().splitlines():
        message, head, body = text.split("\t")
        yield eval(message, NAMES), bytes.fromhex(head), bytes.fromhex(body)


def test_the_bytes_of_every_message_are_unchanged() -> None:
    for message, head, body in golden():
        assert encode(message) == (head, body)
        found = decode(head, body)
        assert type(found) is type(message)
        assert found == message
        assert decode(memoryview(head + body)) == message


def test_every_message_and_every_field_is_among_the_golden_ones() -> None:
    count = Counter(type(message) for message, _, _ in golden())
    assert {kind for kind in get_args(Message) if count[kind] < 6} == set()
    shown = {
        (type(message), one.name)
        for message, _, _ in golden()
        for one in fields(message)
        if one.default is MISSING or getattr(message, one.name) != one.default
    }
    assert {(kind, one.name) for kind in get_args(Message) for one in fields(kind)} - shown == set()


EDGES = {
    "ID": ("HEARTBEAT {}", ["a", ID, "..."], ["", ID + "A", ".", "..", "a/b", "ä"]),
    "target": ("REPORT a {}", ["-", ID], ["", "--/", ID + "A", "."]),
    "topic": ("MERGE a {} x", ["!", TOPIC, "a=b"], ["", TOPIC + "~", "\x7f", "a\tb"]),
    "hex": ("LOOK a {} token=1", ["0" * 16, HEX], ["", "f" * 15, "f" * 17, "F" * 16, "g" * 16]),
    "word": ("PERIODIC a store=0000000000000000 incarnation=1 change=1 stamp=1 proxies= address={}",
             ["", "!", "~" * 8192, "a=b"], ["~" * 8193, "\x7f", "\t"]),
    "action": ("OPERATE a - {}", ["a", "z" * 20], ["", "z" * 21, "A", "a1"]),
    "number": ("HEARTBEAT a stamp={}", ["0", str(NUMBER)],
               ["", "-1", "+1", "00", "01", "1_0", "٣", "²", str(NUMBER + 1), "1" * 20, "1" * 5000]),
    "flag": ("HEARTBEAT a leaving={}", ["0", "1"], ["", "2", "00", "01", "-1", "true"]),
    "start": ("SUBSCRIBE a b number=1 opening=1 from={}",
              ["earliest", "latest", "last:1", "last:10000", HEX + ".1", f"{HEX}.{NUMBER}", "@0", f"@{NUMBER}"],
              ["", "Latest", "last", "last:", "last:0", "last:01", "last:10001", "last:1e3", "last:٣",
               "now", "-1", "7", HEX + ".0", HEX, "@", "@-1", "@01", f"@{NUMBER + 1}", "@earliest"]),
    "rows": ("PUT a b 1 publisher=0000000000000000 count=1 previous=0 crc=1 !rows={}",
             ["1", "64"], ["", "0", "65", "01", str(NUMBER + 1)]),
    "mode of a group": ("SUBSCRIBE a b number=1 opening=1 !group={}", ["any", "shared", "keyed"], ["", "both"]),
    "mode": ("GROUP a b change name=g subscription=1 mode={}", ["shared", "keyed"], ["", "any"]),
    "policy": ("SUBSCRIBE a b number=1 opening=1 onlost={}", ["wait", "redeliver"], ["", "drop"]),
    "parts": ("SUBSCRIBE a b number=1 opening=1 parts={}", ["0", "4096"], ["", "-1", "4097", "01"]),
    "attempts": ("SUBSCRIBE a b number=1 opening=1 attempts={}", ["0", "1000"], ["", "-1", "1001", "01"]),
    "facts of groups": ("DESCRIBE a b what={}", ["groups", "members", "dead"], ["", "all"]),
    "position": ("GET a b {} number=1 opening=1", ["-1", "0" * 16 + ".0", HEX + f".{NUMBER}"],
                 ["", "-2", "0" * 16, "0" * 16 + ".", "0" * 15 + ".0", "0" * 16 + f".{NUMBER + 1}"]),
    "entry": ("ACK a 0000000000000000 0000000000000000 term=1 loop=1 durable={}",
              ["0.0", f"{NUMBER}.{NUMBER}"], ["", "1", "1.", ".1", "1.1.1", "01.1", f"1.{NUMBER + 1}"]),
    "outcome": ("STATUS a {}", ["success", "deposed"], ["", "SUCCESS", "fine"]),
    "message": ("STATUS a empty {}", ["", "-1", "0" * 16 + ".1", "reason=x"], ["-2", "0" * 16, "reason"]),
    "kind": ("PREPARE a 0000000000000000 member=0000000000000000 ballot=1 token=1 kind={}",
             ["take", "hand", "drop", "add", "found", *register.KINDS], ["", "steal", "Take"]),
    "vote": ("VOTE a 0000000000000000 {} token=1 identity=0000000000000000",
             ["heard", "told", *register.VoteOutcome], ["", "maybe"]),
    "step of a copy": ("COPY a 0000000000000000 0000000000000000 {} token=1", sorted(standby.STEPS), ["", "batch"]),
    "step of a repair": ("REPAIR a 0000000000000000 0000000000000000 {} term=1 log=1 offset=1",
                         sorted(standby.REPAIR_STEPS), ["", "begin"]),
    "roster": ("STATUS a empty stores={}", ["", f"{HEX}.7fffffffffffffff.{ID}", f"{HEX}.0."],
               [HEX, f"{HEX}.8000000000000000.", f"{HEX}..", f"{HEX}.0.{ID}A", f"{HEX}.0.,"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", EDGES)
def test_the_bounds_of_a_field_are_exact(kind: str) -> None:
    text, taken, refused = EDGES[kind]
    for value in taken:
        head = (text.format(value).rstrip(" ") + " !v=1\r\n\r\n").encode()
        assert decode(head), value
    for value in refused:
        with pytest.raises(DecodeError):
            decode((text.format(value) + " !v=1\r\n\r\n").encode())
