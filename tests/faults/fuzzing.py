"""Messages that a hostile peer sends: arbitrary bytes, valid messages, and such of which something was changed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from pubsub.protocol import Message, Outcome
from pubsub.protocol import messages as m
from tests.faults.hostile import LOG, framed, put, train

NEAR: Final = (0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**30, -1)
"""Numbers at the edges of what fits somewhere."""

WORDS: Final = (
    *(b"!v=2", b"!v=", b"!new=1", b"v=1", b"=", b"", b" ", b"..", b"-", b"\r\n\r\n", b"\0", b"\xff" * 9, b"PUT", b"x="),
    *(
        b"A" * 70,
        b"B" * 20_000,
        b"topic=\xe9",
        b"log=" + b"g" * 16,
        b"crc=99999999999",
        b"last=" + b"9" * 300,
        b"!rows=0",
    ),
    *(b"!rows=64", b"!rows=1000000000"),
)

NAMES: Final = tuple(f"eve{number}" for number in range(20))
"""Who the hostile ones say they are."""


def samples(chance: random.Random, names: Sequence[str] = NAMES) -> list[Message]:
    """One of each message, none of which is about what others use, by one of these names."""
    topic, who = f"t{chance.randrange(50)}", chance.choice(names)
    number = chance.choice([n for n in NEAR if 0 <= n < 2**63])
    place = (LOG, min(number, 2**40 - 1))
    table = {f"t{chance.randrange(99)}": LOG for _ in range(chance.randrange(5))}
    line = chance.choice(CHUNKS)
    return [
        m.Subscribe(who, topic, number, number, log=LOG, avoid=LOG),
        m.Subscribe(who, topic, number, number, name=who, start="earliest"),
        m.Unsubscribe(who, topic, number, number),
        m.Get(who, topic, place, number, number, records_max=number, bytes_max=number, wait_ms=number),
        m.Read(who, topic, None, place, records_max=number, bytes_max=number),
        put(topic, max(1, number), b"x", sender=who, previous=chance.choice([0, number])),
        m.Put(who, topic, number, LOG, number, number, 0, body=b"\1\0\0\0" + b"\xff" * 4 + b"x"),
        train([put(topic, one, b"%d" % one, sender=who, previous=one - 1) for one in range(1, chance.randrange(2, 9))]),
        train([put(topic, max(1, number), b"x", sender=who), put(topic, chance.randrange(1, 9), b"", sender=who)]),
        m.Stage(who, topic, number, LOG, who, number, number, 0, body=b"x"),
        m.Publish(who, topic, number, LOG, {who: number}),
        m.Periodic(who, LOG, number, number, "tcp://127.0.0.1:1", "tcp://127.0.0.1:2", number, 0, table, number),
        m.Heartbeat(who, number),
        m.Owners(who, table),
        m.Transfer(who, topic, chance.choice(["offer", "chunk", "commit", "x"]), LOG, number, LOG, line),
        m.Report(who, chance.choice(["-", "s9", who])),
        m.Operate(who, chance.choice(["-", "s9"]), chance.choice(["abandon", "move", "x"]), topic, "s9", log=LOG),
        m.Status(who, Outcome.SUCCESS, place, last=number, number=number, body=b"t=1"),
        m.Merge(who, topic, "tcp://127.0.0.1:1", LOG),
    ]


CHUNKS: Final = (
    b"",
    b"\n",
    b"null\n",
    b"[" * 100_000 + b"\n",
    b'{"open":' * 50_000 + b"\n",
    b'{"open": "%s", "logs": [["%s", 1, 1e400, 1, 0]]}\n' % (LOG.encode(), LOG.encode()),
    b'{"open": "%s", "logs": [["%s", 1, 9223372036854775807, 1, 0]], "spine": [], "absorbed": [], "ended": [],'
    b' "rivals": {}}\n' % (LOG.encode(), LOG.encode()),
    b'{"log": "%s", "rows": [[1, 9223372036854775807, "a/b", 1, 1, 1, 1, 16777216]]}\nx' % LOG.encode(),
    b'{"log": "%s", "rows": [[1, 1, "a/b", 1, 1, 1, 1, -2]]}\nx' % LOG.encode(),
    b'{"stage": ["a/b", 1, "x", 1], "rows": [[0, 1, 1, -5]]}\nxxxxx',
    b'{"skip": 1, "counters": [["no publisher", 1]]}\n',
    b'{"last": [["eve/%s", %s]]}\n' % (LOG.encode(), b"9" * 5000),
    b'{"entries": [["eve", 1, 1, true, 1, "%s", 1, 5]]}\n' % LOG.encode(),
    b'{"entries": 5}\n',
)
"""Bodies of TRANSFER."""


def fuzz(seed: int, count: int, origin: bool, names: Sequence[str] = NAMES) -> Iterator[list[bytes]]:
    """So many messages: arbitrary frames, valid messages, and such of which something was changed.

    Args:
        origin: put an origin frame in front, as servers do.
        names: of their senders.
    """
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.15:
            frames = [chance.randbytes(chance.choice((0, 1, 5, 80, 5_000))) for _ in range(chance.randrange(1, 13))]
        else:
            message = chance.choice(samples(chance, names))
            number, callback = (abs(chance.choice(NEAR)) for _ in range(2))
            frames = framed(message, number, callback)
            for _ in range(chance.choice((0, 1, 1, 2, 4))):
                frames = _changed(chance, frames)
        if origin:
            frames.insert(0, chance.choice((b"", b"", b"c", b"cnobody", b"\0" * 300)))
        yield frames


def _changed(chance: random.Random, frames: list[bytes]) -> list[bytes]:
    frames = list(frames)
    place = chance.randrange(len(frames))
    frame = frames[place]
    kind = chance.randrange(8)
    if kind == 0:
        frames[place] = frame[: chance.randrange(len(frame) + 1)]
    elif kind == 1 and frame:
        at = chance.randrange(len(frame))
        frames[place] = frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
    elif kind == 2:
        frames.insert(place, chance.choice((b"", b"x" * 100, frame)))
    elif kind == 3:
        del frames[place]
        frames = frames or [b""]
    else:
        head, end, rest = frames[0].partition(b"\r\n\r\n")
        words = head.split(b" ")
        at = chance.randrange(len(words))
        name, equals, _ = words[at].partition(b"=")
        words[at : at + 1] = chance.choice(
            (
                [name + equals + b"%d" % chance.choice(NEAR)],
                [chance.choice(WORDS)],
                [words[at], words[at]],
                [words[at], chance.choice(WORDS)],
                [],
                [words[at]] * 60,
            )
        )
        frames[0] = b" ".join(words).replace(b"!v=1", b"!v=2" if kind == 4 else b"!v=1") + end + rest
    return frames
