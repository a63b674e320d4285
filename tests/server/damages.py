"""Damaged stores, by the thousand: the prediction of `pubsub server check`, beside the acts of a server.

    .venv/bin/python -m tests.server.damages --count 1000
    .venv/bin/python -m tests.server.damages --count 1000 --mishaps

A store is made once, with every kind of page: leaves and inner pages of tables and of indexes, overflow pages, free
ones, the first one; a stopped server's, and a killed one's beside its write-ahead log. Each seed damages one place of a
copy, or does to it what environments do (`tests.mishaps`). It has `check` look at that, and then a server: it starts,
everything of every topic is asked for and acknowledged, in loops that also change something: clients were opened anew,
and records are put to another topic. A record is put to each, sinks publish, and time passes until what was consumed
goes; then it is started again, and what was put is there.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from zlib import crc32

import apsw

from pubsub.errors import StorageError
from pubsub.protocol import Get, Outcome, Publish, Subscribe, encode_batch
from pubsub.protocol import Stage as Rows
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Found, Verdict
from pubsub.server.storage.checkpoint import grow_log
from pubsub.server.storage.schema import FILE
from tests.mishaps import Generations, befall, contents
from tests.server.stage import STORE, Stage, bodies, put

PAGE = 16_384
LOG = f"{FILE}-wal"
TOPICS = ("large", "many", "published", "small")
STEADY = "steady"
"""A topic that records are put to meanwhile."""
QUIET = {"retention_hold_seconds": 15.0, "skew_seconds": 1.0}


@dataclass
class Made:
    """The store that is damaged.

    Attributes:
        earlier, stopped, killed, busy: names and contents of its files: of a server in the middle of its life, of one
            that was stopped, of one that was killed, and of one that was killed soon after its log was copied back.
        pages: numbers of the stopped one's pages, by their kind.
    """

    earlier: dict[str, bytes]
    stopped: dict[str, bytes]
    killed: dict[str, bytes]
    busy: dict[str, bytes]
    pages: dict[str, list[int]] = field(default_factory=dict)

    @property
    def generations(self) -> Generations:
        """The same as `tests.mishaps` has it."""
        return Generations(FILE, PAGE, self.earlier, self.stopped, self.busy)


def long(number: int) -> bytes:
    """A body that goes on over several pages, none of which is like another: a page in its place would not be told."""
    return (b"x%010d" % number) * 4_000


def make(directory: Path) -> Made:
    """Fill a store.

    Args:
        directory: for it, and a copy.
    """
    stage = Stage(directory / "made", **QUIET)
    for topic in (STEADY, *TOPICS):
        assert stage.subscribe("bob", topic, 5).outcome is Outcome.SUCCESS
    for number in range(40):
        stage.say(put("gone", 1 + number, [b"g" * 9_000]))
    for number in range(60):
        stage.say(put("small", 1 + 3 * number, [b"s%d" % number, b"t" * 200, b"u"]))
        if number % 7 == 0:
            stage.say(put("large", 1 + number, [long(number)]))
        stage.loop()
        if number == 40:
            _copy_back(directory / "made")
    earlier = contents(directory / "made", FILE)
    for number in range(600):  # So many that the small tables have inner pages.
        stage.say(put("many", 1, [b"m%d" % number], sender=f"publisher-{number:05}"))
        if number % 2:
            stage.say(Subscribe(f"subscriber-{number:05}", "gone", 5, 5))
    stage.loop()
    for attempt in ("one", "two"):
        for row in range(3):
            body = encode_batch([b"p%d" % row + b"y" * 8_000])
            asked = Rows("sink", "published", 0, STORE, attempt, row, 1, crc32(body), body=body)
            assert stage.ask(asked).outcome is Outcome.SUCCESS
    assert stage.ask(Publish("sink", "published", 0, STORE, {"one": 3})).outcome is Outcome.SUCCESS
    body = encode_batch([b"never published" * 2_000])
    asked = Rows("sink", "published", 5, STORE, "three", 0, 1, crc32(body), body=body)
    assert stage.ask(asked).outcome is Outcome.SUCCESS
    stage.sleep(60)
    assert stage.store.free_bytes() > 10 * PAGE
    for number in range(5):  # These are only in the log of the one that was killed.
        stage.put("small", 1000 + number, [b"late"])
    killed = contents(directory / "made", FILE)
    _copy_back(directory / "made")
    for number in range(5):
        stage.put("small", 2000 + number, [b"later"])
        stage.put("large", 2000 + number, [long(2000 + number)])
    busy = contents(directory / "made", FILE)
    _copy_back(directory / "made")
    stage.close()
    made = Made(earlier, contents(directory / "made", FILE), killed, busy)
    assert LOG not in made.stopped
    made.pages = _kinds(directory / "made" / FILE)
    return made


def _copy_back(directory: Path) -> None:
    """Copy the write-ahead log back, and empty it."""
    with contextlib.closing(apsw.Connection(str(directory / FILE))) as other:
        other.pragma("user_version")  # A connection that has not read yet does nothing.
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _kinds(path: Path) -> dict[str, list[int]]:
    pages: dict[str, list[int]] = {"first": [1]}
    with contextlib.closing(apsw.Connection(str(path))) as db:
        indexes = {name for (name,) in db.execute("select name from sqlite_schema where type = 'index'")}
        seen = {1}
        for name, number, kind in db.execute("select name, pageno, pagetype from dbstat"):
            what = f"index {kind}" if name in indexes else f"{kind} of {'batch' if name == 'batch' else 'a table'}"
            seen.add(number)
            if number != 1:
                pages.setdefault(what, []).append(number)
        pages["free"] = sorted({*range(1, db.pragma("page_count") + 1)} - seen)
    return pages


# Damages


def _page(raw: bytearray, number: int) -> slice:
    return slice((number - 1) * PAGE, min(len(raw), number * PAGE))


def _at(raw: bytearray, where: slice, random: Random) -> int:
    """A place in a page, where its head and its pointers are more often than elsewhere."""
    size = where.stop - where.start
    return where.start + random.randrange(random.choice((min(size, 100), min(size, 600), size)))


def spoil(raw: bytearray, where: slice, random: Random) -> str:
    """Damage something of these bytes; what, for a person."""
    how = random.choice(("bit", "bit", "bits", "noise", "zeros", "page of noise", "page of zeros"))
    if how in {"bit", "bits"}:
        for _ in range(1 if how == "bit" else 3):
            raw[_at(raw, where, random)] ^= 1 << random.randrange(8)
    elif how.startswith("page"):
        size = where.stop - where.start
        raw[where] = random.randbytes(size) if how == "page of noise" else bytes(size)
    else:
        at = _at(raw, where, random)
        size = min(64, where.stop - at)
        raw[at : at + size] = random.randbytes(size) if how == "noise" else bytes(size)
    return how


def damage(made: Made, directory: Path, seed: int) -> str:
    """Write a copy of the store into a directory, with one damage; what it is."""
    random = Random(seed)
    kinds = [*made.pages, "log", "log's head", "cut", "log cut"]
    kind = kinds[seed % len(kinds)]
    killed = kind.startswith("log") or (kind != "cut" and random.random() < 0.3)
    files = {name: bytearray(raw) for name, raw in (made.killed if killed else made.stopped).items()}
    if kind in {"cut", "log cut"}:
        raw = files[LOG if kind == "log cut" else FILE]
        size = random.randrange(len(raw))
        del raw[size:]
        what = f"{kind} to {size}"
    elif kind == "log's head":
        what = f"{kind}: {spoil(files[LOG], slice(0, 32), random)}"
    elif kind == "log":
        frames = (len(files[LOG]) - 32) // (PAGE + 24)
        start = 32 + random.randrange(frames) * (PAGE + 24)
        what = f"{kind} at {start}: {spoil(files[LOG], slice(start, start + PAGE + 24), random)}"
    else:
        number = random.choice(made.pages[kind])
        if _page(files[FILE], number).start >= len(files[FILE]):  # It is in the killed one's log only.
            killed, files = False, {name: bytearray(raw) for name, raw in made.stopped.items()}
        what = f"page {number}, {kind}: {spoil(files[FILE], _page(files[FILE], number), random)}"
    directory.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return f"{'killed' if killed else 'stopped'}, {what}"


# What a server does


@dataclass
class Served:
    """What a server did with one topic.

    Attributes:
        records, lost: how many it handed out, and how many it told to be lost.
        ended: the outcome behind the last of them: EMPTY where it was at the end.
        put: the outcome of a put.
        beside: outcomes of records that were put to another topic in the same loops, and not stored.
    """

    records: int = 0
    lost: int = 0
    ended: Outcome = Outcome.EMPTY
    put: Outcome = Outcome.SUCCESS
    beside: list[Outcome] = field(default_factory=list)


class Beside:
    """Traffic on another topic, in the loops in which a topic is asked for.

    Args:
        stage: the server.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._asked = 0
        self.stored = 0
        """Records that were answered to be stored."""
        self.refused: list[Outcome] = []

    def say(self) -> None:
        """Put the next record, in the loop that comes."""
        record = put(STEADY, self.stored + 1, [b"%d" % self.stored], sender="beside", previous=self.stored)
        self._asked = self._stage.say(record)

    def hear(self) -> None:
        """Take note of what was answered."""
        answer = self._stage.answer(self._asked)
        if answer is not None and answer.outcome in {Outcome.SUCCESS, Outcome.DUPLICATE}:
            self.stored += 1
        elif answer is not None:
            self.refused.append(answer.outcome)


def serve(directory: Path) -> dict[str, Served] | str:
    """Have a server start on a store and do everything there is to do; or why it refused to start.

    Raises:
        StorageError: it ended after it had started, or did not start again.
        AssertionError: something that was answered to be stored is not there.
    """
    try:
        stage = Stage(directory, **QUIET)
    except StorageError as error:
        return str(error)
    try:
        grow_log(stage.store, 1 << 20)
        beside = Beside(stage)
        out = {topic: _topic(stage, topic, 5 + number, beside) for number, topic in enumerate(TOPICS)}
        _publish(stage)
        stage.sleep(60)
        stage.restart()
        stage.sleep(2)
        _read_back(stage, beside)
    finally:
        stage.close()
    return out


def _topic(stage: Stage, topic: str, epoch: int, beside: Beside) -> Served:
    served = Served()
    last = None
    while True:
        beside.say()
        answer = stage.ask(Get("bob", topic, last, 5, epoch, records_max=100))
        beside.hear()
        if answer.outcome is Outcome.SUCCESS:
            served.records += answer.records
        elif answer.outcome is Outcome.LOST:
            assert answer.first is not None
            assert answer.message is not None
            served.lost += answer.message[1] - answer.first[1] + 1
        else:
            served.ended = answer.outcome
            break
        last = answer.message
        epoch += 1  # The client was opened anew.
    served.put = stage.put(topic, 5_000_000, sender="late").outcome
    served.beside = beside.refused.copy()
    beside.refused.clear()
    return served


def _publish(stage: Stage) -> None:
    """Publish one attempt of a sink, and drop another; the pages of either may be damaged."""
    for attempt in ("one", "two"):
        body = encode_batch([b"z" * 30_000])
        stage.ask(Rows("sink", "published", 1, STORE, attempt, 0, 1, crc32(body), body=body))
    stage.ask(Publish("sink", "published", 1, STORE, {"one": 1}))


def _read_back(stage: Stage, beside: Beside) -> None:
    """See that everything is there that was stored beside, where its topic can be read."""
    found: list[bytes] = []
    last = None
    while (answer := stage.ask(Get("bob", STEADY, last, 5, 5, records_max=100))).outcome is Outcome.SUCCESS:
        found += bodies(answer)
        last = answer.message
    expected = [b"%d" % number for number in range(beside.stored)]
    if answer.outcome is Outcome.EMPTY:
        assert found == expected, f"{STEADY}: {found} where {expected} was stored"
    else:
        assert answer.outcome in {Outcome.UNAVAILABLE, Outcome.UNKNOWN}, answer  # Unknown: it went with the log.
        assert found == expected[: len(found)], f"{STEADY}: {found} where {expected} was stored"


def compared(found: Found, served: dict[str, Served] | str) -> list[str]:
    """Where a server did something else than `check` had said."""
    refused = isinstance(served, str)
    if refused is not (found.verdict in {Verdict.BROKEN, Verdict.NEWER}):
        return [f"check says {found.verdict} ({found.problems.said}), the server {served if refused else 'starts'}"]
    if isinstance(served, str):
        return []
    out = []
    topics = {topic.topic: topic for topic in found.topics if not topic.quarantined}
    steady = topics.get(STEADY)
    for name, did in served.items():
        if did.beside and not (found.problems or (steady and steady.problems)):
            out.append(f"{name}: while it was asked for, {STEADY} was not served: {did.beside}")
        said = topics.get(name)
        unsure = bool(said and said.problems and found.problems) and did.ended is Outcome.UNAVAILABLE
        if said is None and did.ended is Outcome.UNKNOWN:
            continue  # It went with the end of the log.
        if said is None:
            out.append(f"{name}: check does not name it")
        elif said.held_back:
            if did.ended is not Outcome.UNAVAILABLE or did.records:
                out.append(f"{name}: check says that it is held back, the server: {did}")
        elif said.stops:
            told = did.ended is Outcome.EMPTY and did.records + did.lost == said.records + said.lost
            if did.ended is not Outcome.UNAVAILABLE and not told:  # Rows out of order are found on one way only.
                out.append(f"{name}: check says that it cannot be read from {said.stops} on, the server: {did}")
        elif (did.records, did.lost, did.ended) != (said.records, said.lost, Outcome.EMPTY) and not unsure:
            out.append(f"{name}: check says {said.records} records and {said.lost} lost, the server: {did}")
        elif did.put is not Outcome.SUCCESS and not found.problems:
            out.append(f"{name}: check says nothing of a page that cannot be used, the server: {did}")
    return out


def mishap(made: Made, directory: Path, seed: int) -> str:
    """Write a copy of the store into a directory, to which something happened; what."""
    return befall(made.generations, directory, seed)


def tried(
    made: Made, directory: Path, seed: int, spoiled: Callable[[Made, Path, int], str] = damage
) -> tuple[str, str, list[str]]:
    """One seed: the damage, check's verdict, and where the server did something else."""
    what = spoiled(made, directory, seed)
    try:
        found = check(directory)
        verdict = str(found.verdict)
        return what, verdict, compared(found, serve(directory))
    except StorageError as error:
        return what, "", [f"the server ended: {error}"]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        return what, "", [f"{type(error).__name__}: {error}"]
    finally:
        shutil.rmtree(directory)


def scratch() -> Path:
    """Where files are in memory, if there is such a place: nothing here is about what a disk keeps."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


@contextlib.contextmanager
def workshop() -> Iterator[tuple[Made, Path]]:
    """The store, and a directory for copies of it."""
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        yield make(Path(place)), Path(place) / "copy"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mishaps", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    verdicts: Counter[str] = Counter()
    wrong = 0
    with workshop() as (made, copy):
        for seed in range(asked.seed, asked.seed + asked.count):
            what, verdict, findings = tried(made, copy, seed, mishap if asked.mishaps else damage)
            verdicts[verdict] += 1
            wrong += bool(findings)
            for finding in findings:
                print(f"seed {seed}, {what}: {finding}", flush=True)
    kinds = ", ".join(f"{count} {verdict or 'ended'}" for verdict, count in sorted(verdicts.items()))
    seconds = time.monotonic() - began
    print(f"{asked.count} damaged stores in {seconds:.0f} s: {kinds}; {wrong} found something")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
