"""Open clients on thousands of damaged state files, and check both the opening and the client's behaviour after it.

    .venv/bin/python -m tests.client.damages --count 1000
    .venv/bin/python -m tests.client.damages --count 1000 --mishaps

A state file is made once, with every kind of row of ours and a table of the application. It exists in two versions: of
a closed client, and of a killed one with its write-ahead log. Each seed damages one place of a copy, or applies a
mishap of an environment (`tests.mishaps`), and opens a client on the copy. If that succeeds, the test does everything
that needs no proxy: it reads all, makes and discards puts, writes the application's table, closes and opens again.
After the opening no page of ours may be damaged. Each body to be sent must be the original, or its checksum must show
the damage, so that its server refuses it.
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

from pubsub.client import Client
from pubsub.client.storage.store import PAGE_BYTES
from pubsub.errors import HandlerMisused, PubsubError, StorageError
from tests.mishaps import Generations, befall, contents
from tests.server.damages import spoil

FILE = "c.db"
LOG = f"{FILE}-wal"
TOPICS = tuple(f"topic-{number}" for number in range(12))
SAME_MOMENT = ("memory of another boot", "journal of another file", "moved away, with a link")
"""Mishaps after which every put is there."""


@dataclass
class Made:
    """The undamaged state.

    Attributes:
        earlier, closed, killed: names and contents of the files: of a client in mid-life, of a closed one, and of a
            killed one.
        bodies: bodies of the puts, by counter.
        pages: numbers of the closed client's pages, by their kind.
    """

    earlier: dict[str, bytes]
    closed: dict[str, bytes]
    killed: dict[str, bytes]
    bodies: dict[int, bytes]
    pages: dict[str, list[int]] = field(default_factory=dict)

    @property
    def generations(self) -> Generations:
        """The states in the form of `tests.mishaps`."""
        return Generations(FILE, PAGE_BYTES, self.earlier, self.closed, self.killed)


def opened(directory: Path) -> Client:
    """Open the client, with no process at its proxy's address."""
    return Client("c", proxies=["tcp://127.0.0.1:9"], directory=directory)


def make(directory: Path) -> Made:
    client = opened(directory)
    for number in range(60):
        client.put(TOPICS[number % 12], (b"body-%d " % number) * (2_000 if number % 9 == 0 else 20), wait=False)
        if number == 40:
            client._session.store._checkpoint()
    earlier = contents(directory, FILE)
    with client.transaction() as transaction:
        transaction.execute("create table orders (id integer primary key, text text)")
        transaction.executemany("insert into orders values (?, ?)", [(one, "order " * 80) for one in range(400)])
        transaction.execute("create table gone (body blob)")
        transaction.execute("insert into gone values (zeroblob(400000))")
    with client.transaction() as transaction:
        transaction.execute("drop table gone")  # Free pages.
    client.close()
    db = apsw.Connection(str(directory / FILE))
    for number in range(300):
        topic = f"heard-{number:03}"
        db.execute(
            "insert into pubsub_subscriptions values (?,1,1,?,?,?,?,null,null,0,1)",
            (topic, number + 1, f"{number:016x}", f"{number:016x}", number),
        )
        db.execute("insert into pubsub_taken values (?,?,?)", (topic, f"sender-{number}/{number:016x}", number + 7))
    for number in range(40):
        db.execute(
            "insert into pubsub_dead_letters values (?,?,?,?,?,?,?,?,?,?,?)",
            (number, "heard-001", "x.1", "x.1", "p/1", number, 5, b"letter" * 500, "no", 3, 5.0),
        )
    db.close()
    client = opened(directory)
    for number in range(3):  # These are in the killed one's log only.
        client.put(TOPICS[number], b"late-%d" % number, wait=False)
    killed = contents(directory, FILE)
    counters = [counter for counter, *_ in client._session.store.rows()]
    bodies = {counter: client._session.store.body(counter) for counter in counters}
    client.close()
    made = Made(earlier, contents(directory, FILE), killed, bodies)
    made.pages = _kinds(directory / FILE)
    return made


def _kinds(path: Path) -> dict[str, list[int]]:
    pages: dict[str, list[int]] = {"first": [1]}
    with contextlib.closing(apsw.Connection(str(path))) as db:
        seen = {1}
        for name, number, kind in db.execute("select name, pageno, pagetype from dbstat"):
            whose = "ours" if "pubsub_" in name else "the application's"
            what = name if name in {"pubsub_outbox", "pubsub_state"} else whose
            seen.add(number)
            if number != 1:
                pages.setdefault(f"{kind} of {what}", []).append(number)
        pages["free"] = sorted({*range(1, db.pragma("page_count") + 1)} - seen)
    return pages


def damage(made: Made, directory: Path, seed: int) -> str:
    """Write a copy of the state into a directory, with one damage; return its description."""
    random = Random(seed)
    kinds = [*made.pages, "log", "cut"]
    kind = kinds[seed % len(kinds)]
    killed = kind == "log" or random.random() < 0.3
    files = {name: bytearray(raw) for name, raw in (made.killed if killed else made.closed).items()}
    if kind == "cut":
        size = random.choice((random.randrange(len(files[FILE])), random.randrange(200)))
        del files[FILE][size:]
        what = f"cut to {size}"
    elif kind == "log":
        raw = files[LOG]
        start = random.choice((0, random.randrange(0, len(raw), PAGE_BYTES)))
        what = f"log at {start}: {spoil(raw, slice(start, min(len(raw), start + PAGE_BYTES)), random)}"
    else:
        number = random.choice(made.pages[kind])
        where = slice((number - 1) * PAGE_BYTES, number * PAGE_BYTES)
        if where.stop > len(files[FILE]):
            files = {name: bytearray(raw) for name, raw in made.closed.items()}
        what = f"page {number}, {kind}: {spoil(files[FILE], where, random)}"
    directory.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return f"{'killed' if killed else 'closed'}, {what}"


def mishap(made: Made, directory: Path, seed: int) -> str:
    """Write a copy of the state into a directory, after a mishap; return its description."""
    return befall(made.generations, directory, seed)


def used(made: Made, directory: Path, *, may_be_earlier: bool = False) -> str:
    """Open a client on a state file, and do everything; return the error of the opening, "" if there was none.

    Args:
        may_be_earlier: part of the state may be from before most puts, which no file can show by itself.

    Raises:
        AssertionError: a wrong result.
        PubsubError: a later failure.
    """
    try:
        client = opened(directory)
    except StorageError as error:
        return type(error).__name__
    missing = made.bodies.keys() - {counter for counter, *_ in client._session.store.rows()}
    # The last commit may be incomplete, and damaged bytes at the very end of the log may count as beyond its end.
    assert may_be_earlier or len(missing) <= 2, f"{len(missing)} puts are gone without a word"
    for _ in range(2):
        with contextlib.closing(client):
            _see_bodies(made, client)
            client.dead_letters()
            client.calls()
            client.put("topic-new", b"new", wait=False)
            _write_along(client, may_be_foreign=may_be_earlier)
            for topic in TOPICS[::3]:
                client.discard(topic)
        client = opened(directory)
    client.close()
    return ""


def _see_bodies(made: Made, client: Client) -> None:
    store = client._session.store
    for counter, topic, _, _, _, checksum, _ in store.rows():
        body = store.body(counter)
        sound = made.bodies.get(counter, body) == body
        assert sound or crc32(body) != checksum, f"{topic} would be sent a body that was never put"


def _write_along(client: Client, *, may_be_foreign: bool) -> None:
    """Write the application's table; if that table is damaged, only this transaction may fail."""
    try:
        if may_be_foreign and client._session.store.db.pragma("integrity_check") != "ok":
            return  # Pages of the application may be ours as well: to write to them is to damage ours.
        with client.transaction() as transaction:
            transaction.execute("update orders set text = text || '!' where id % 7 = 0")
            transaction.put("topic-new", [b"along"])
    except (apsw.CorruptError, apsw.SQLError, apsw.ConstraintError, UnicodeDecodeError, StorageError, HandlerMisused):
        return


def tried(
    made: Made, directory: Path, seed: int, spoiled: Callable[[Made, Path, int], str] = damage
) -> tuple[str, str, str]:
    """Run one seed: return the damage, the error of the opening, and the fault found."""
    what = spoiled(made, directory, seed)
    try:
        return what, used(made, directory, may_be_earlier=spoiled is mishap and what not in SAME_MOMENT) or "opened", ""
    except PubsubError as error:
        return what, "", f"it ended after it was opened: {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        return what, "", f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def workshop() -> Iterator[tuple[Made, Path]]:
    """Yield the state, and a directory for copies of it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        yield make(Path(place) / "made"), Path(place) / "copy"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mishaps", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    said: Counter[str] = Counter()
    wrong = 0
    with workshop() as (made, copy):
        for seed in range(asked.seed, asked.seed + asked.count):
            what, verdict, finding = tried(made, copy, seed, mishap if asked.mishaps else damage)
            said[verdict or "ended"] += 1
            if finding:
                wrong += 1
                print(f"seed {seed}, {what}: {finding}", flush=True)
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in sorted(said.items()))
    seconds = time.monotonic() - began
    print(f"{asked.count} damaged state files in {seconds:.0f} s: {kinds}; {wrong} found something")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
