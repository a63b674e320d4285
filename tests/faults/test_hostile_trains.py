"""False trains: each is refused completely and counted, does no harm, and takes no memory.

A proxy and a server, real processes with keys and without; a client that behaves well puts and gets all the time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX, TRAIN_BYTES_MAX, TRAIN_ROWS_MAX
from pubsub.protocol import Outcome
from pubsub.protocol.messages import Put
from pubsub.protocol.train import ROW_BYTES
from tests.client.opened import nothing
from tests.faults.cluster import Cluster
from tests.faults.hostile import KEYS, MIB, Growth, Town, framed, put, train, with_keys
from tests.faults.wire import Wire

pytestmark = pytest.mark.faults

GROWTH_BYTES_MAX = 64 * MIB
FLOOD = 300
"""So many times each lie is sent."""


@pytest.fixture(scope="module", params=KEYS, ids=with_keys)
def town(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    directory: Path = tmp_path_factory.mktemp("town")
    with Cluster(directory, keys=request.param) as cluster:
        town = Town(cluster)
        yield town
        town.well.stop()


def chain(*counters: int, topic: str = "lies") -> list[Put]:
    """Puts of one record, each naming the one before."""
    return [
        put(topic, one, b"%d" % one, previous=before) for before, one in zip((0, *counters), counters, strict=False)
    ]


def with_table(*cells: tuple[int, int, int, int, int]) -> Put:
    """A train of two rows in whose table these stand, with a checksum that is right and a header that goes with it."""
    table = b"".join(struct.pack("<QQIII", *row) for row in cells)
    counter, previous, *_ = cells[0]
    count = sum(row[2] for row in cells)
    return train(chain(1, 2), table, counter=counter, previous=previous, count=count, rows=len(cells))


ONE, TWO = ((one.counter, one.previous, 1, one.checksum, len(one.body)) for one in chain(1, 2))
SIZE = ONE[4]

LIES = {
    "fewer rows than it has": train(chain(1, 2), rows=1, count=1),
    "a table that is not all there": train(chain(1), b"\1" * (ROW_BYTES - 1)),
    "more rows than it has": train(chain(1, 2), rows=TRAIN_ROWS_MAX),
    "the table's checksum": train(chain(1, 2), checksum=7),
    "the batch's checksum in place of the table's": train(chain(1, 2), checksum=ONE[3]),
    "another first counter": train(chain(1, 2), counter=2),
    "another predecessor": train(chain(5, 6), previous=3),
    "another number of records": train(chain(1, 2), count=10**9),
    "no number of records": train(chain(1, 2), count=0),
    "rows in the wrong order": with_table((2, 1, 1, *TWO[3:]), (1, 0, 1, *ONE[3:])),
    "a row that comes twice": with_table(ONE, ONE),
    "counters that overlap": with_table((1, 0, 5, *ONE[3:]), (3, 2, 1, *TWO[3:])),
    "a row of no records": with_table((1, 0, 0, *ONE[3:]), TWO),
    "a row of too many records": with_table(ONE, (2, 1, BATCH_RECORDS_MAX + 1, *TWO[3:])),
    "4,294,967,295 records": with_table(ONE, (2, 1, 2**32 - 1, *TWO[3:])),
    "a counter of 0": with_table((0, 0, 1, *ONE[3:]), TWO),
    "a predecessor that comes after": with_table(ONE, (2, 2, 1, *TWO[3:])),
    "a counter that overflows": with_table(ONE, (NUMBER_MAX, 1, 1, *TWO[3:])),
    "a counter beyond all": with_table(ONE, (2**64 - 1, 1, 1, *TWO[3:])),
    "a counter that overflows by its records": with_table(ONE, (NUMBER_MAX - 3, 1, 5, *TWO[3:])),
    "a batch that ends behind the body": with_table(ONE, (*TWO[:4], SIZE + 1)),
    "a batch that ends before the body does": with_table(ONE, (*TWO[:4], SIZE - 1)),
    "4 GiB": with_table((*ONE[:4], 2**32 - 1), TWO),
    "sizes that add up beyond 4 GiB": with_table((*ONE[:4], 2**32 - 1), (*TWO[:4], 2 * SIZE + 1)),
    "marked whole": train(chain(1, 2), sole_owner=1),
    "more bytes than a train has": train([put("lies", 1, bytes(TRAIN_BYTES_MAX)), *chain(1, 2)[1:]]),
}
NUMBERS = (b"0", b"-1", b"65", b"1000000000", b"18446744073709551616", b"9" * 300, b"", b"x", b"2 !rows=2", b"0x2")
"""What no train has for its number of rows."""


def test_every_false_row_makes_the_server_refuse_the_complete_train(town: Town) -> None:
    with town.cluster.wire() as wire:
        for title, lie in LIES.items():
            answer = wire.ask(lie)
            assert (title, answer.outcome, answer.last) == (title, Outcome.REFUSED, -1)
        assert said(wire, chain(1, 2)) == (Outcome.SUCCESS, 2), "they left nothing of this publisher's"
    town.unharmed()


def test_an_impossible_number_of_rows_is_refused_by_the_header(town: Town) -> None:
    head, body = framed(train(chain(1, 2, topic="numbers")))
    with town.peer("clients") as eve:
        before = town.counters(town.owner), town.counters(town.other)
        for number in NUMBERS:
            eve.send([head.replace(b"!rows=2", b"!rows=" + number), body])
        eve.until(lambda: eve.answers.get("refused", 0) == len(NUMBERS))
        assert set(eve.answers) == {"refused"}
        del before
    assert all("numbers" not in town.cluster.report(name)["topics"] for name in (town.owner, town.other))
    town.unharmed()


def test_endless_false_rows_cost_no_memory_and_are_counted(town: Town) -> None:
    growth = Growth(town.everyone)
    before = {name: town.counters(name).get("refused", 0) for name in ("s1", "s2")}
    with town.peer("clients") as eve:
        for _ in range(FLOOD):
            for lie in LIES.values():
                eve.send(framed(lie if len(lie.body) < MIB else replace(lie, checksum=0, body=bytes(ROW_BYTES * 3))))
            eve.take()
        eve.until(lambda: eve.answers.get("refused", 0) == FLOOD * len(LIES))
    assert set(eve.answers) == {"refused"}
    after = {name: town.counters(name).get("refused", 0) for name in ("s1", "s2")}
    assert sum(after.values()) - sum(before.values()) >= FLOOD * len(LIES)
    town.unharmed()
    growth.within(GROWTH_BYTES_MAX)


def said(wire: Wire, rows: list[Put], **changed: object) -> tuple[Outcome, int]:
    """What a train of these is answered."""
    answer = wire.ask(train(rows, **changed))
    return answer.outcome, answer.last


def test_a_repeated_row_is_stored_once_and_a_missing_row_is_a_gap(town: Town) -> None:
    bob = town.cluster.client("bob")
    bob.subscribe("again")
    rows = chain(*range(1, TRAIN_ROWS_MAX + 3), topic="again")
    damaged = replace(rows[5], checksum=rows[5].checksum ^ 1)
    empty = replace(rows[5], body=b"", checksum=crc32(b""))
    with town.cluster.wire() as wire:
        assert said(wire, rows[:4]) == (Outcome.SUCCESS, 4)
        assert said(wire, rows[:4]) == (Outcome.DUPLICATE, 4), "all of it"
        assert said(wire, rows[2:5]) == (Outcome.SUCCESS, 5), "its beginning"
        assert said(wire, [rows[0], rows[4]]) == (Outcome.DUPLICATE, 5), "put together in another way"
        assert said(wire, rows[6:9]) == (Outcome.GAP, 5)
        assert said(wire, [rows[4], rows[6]]) == (Outcome.GAP, 5), "in the midst"
        assert said(wire, [rows[4], damaged, rows[6]]) == (Outcome.REFUSED, 5)
        assert said(wire, [empty, rows[6]]) == (Outcome.REFUSED, 5)
        assert said(wire, rows[1 : 1 + TRAIN_ROWS_MAX]) == (Outcome.SUCCESS, TRAIN_ROWS_MAX + 1)
        assert said(wire, rows[5:7], log="f" * 16)[1] in {-1, TRAIN_ROWS_MAX + 1}, "a log that nobody has"
        assert said(wire, rows[-1:]) == (Outcome.SUCCESS, TRAIN_ROWS_MAX + 2), "a train of one"
    got = [bob.get("again") for _ in rows]
    assert [message and message.body for message in got] == [b"%d" % one.counter for one in rows]
    assert nothing(bob, "again")
    bob.unsubscribe("again")
    town.unharmed()
