"""The acts of environments on files of SQLite: copies of another moment, parts of two, and blocks of other files.

Unlike a flipped bit, each of these leaves pages that SQLite wrote, in the wrong place or of the wrong time. Servers'
stores and clients' state files are damaged so by `tests.server.damages --mishaps` and `tests.client.damages --mishaps`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import apsw

BLOCK = 4_096
"""Of a file system: the least that it loses, or gives to the wrong file."""


@dataclass(frozen=True)
class Generations:
    """A database at several moments.

    Attributes:
        name: of its file.
        page_bytes: size of its pages.
        earlier: names and contents of the files, in the middle of its life; not closed, with its write-ahead log.
        closed: of a process that was stopped.
        killed: of one that was killed, which has written somewhat more into its log.
    """

    name: str
    page_bytes: int
    earlier: dict[str, bytes]
    closed: dict[str, bytes]
    killed: dict[str, bytes]

    @property
    def log(self) -> str:
        """The name of its write-ahead log."""
        return f"{self.name}-wal"


Files = dict[str, bytes]
_Mishap = Callable[[Generations, Random], Files]


def contents(directory: Path, name: str) -> Files:
    """The files of a database, by name."""
    paths = (directory / name, directory / f"{name}-wal")
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def _without_log(made: Generations, random: Random) -> Files:
    files = random.choice((made.killed, made.earlier))
    return {made.name: files[made.name]}


def _log_of_earlier(made: Generations, random: Random) -> Files:
    files = random.choice((made.closed, made.killed))
    return {**files, made.log: made.earlier[made.log]}


def _log_of_later(made: Generations, random: Random) -> Files:
    return {**made.earlier, made.log: made.killed[made.log]}


def _backup(made: Generations, random: Random) -> Files:
    return dict(made.earlier)


def _copied_in_part(made: Generations, random: Random) -> Files:
    """`rsync --inplace` of the newer one over the earlier one, or the other way round, that was interrupted."""
    earlier, newer = made.earlier[made.name], random.choice((made.closed, made.killed))
    over, copied = random.choice(((earlier, newer[made.name]), (newer[made.name], earlier)))
    step = random.choice((made.page_bytes, BLOCK, 1))
    size = random.randrange(len(copied)) // step * step
    files = dict(newer) if over is not earlier else dict(made.earlier)
    if random.random() < 0.5:
        files.pop(made.log, None)
    return {**files, made.name: copied[:size] + over[size:]}


def _some(made: Generations, random: Random) -> tuple[Files, bytearray]:
    files = dict(made.killed if random.random() < 0.3 else made.closed)
    return files, bytearray(files[made.name])


def _lost_writes(made: Generations, random: Random) -> Files:
    """Pages that are as they were earlier."""
    files, raw = _some(made, random)
    earlier, size = made.earlier[made.name], made.page_bytes
    starts = range(0, min(len(raw), len(earlier)), size)
    differ = [at for at in starts if raw[at : at + size] != earlier[at : at + size]]
    for at in random.sample(differ, min(len(differ), random.choice((1, 1, 1, 3)))):
        raw[at : at + size] = earlier[at : at + size]
    return {**files, made.name: bytes(raw)}


def _swapped(made: Generations, random: Random) -> Files:
    files, raw = _some(made, random)
    size = made.page_bytes
    one, two = (number * size for number in random.sample(range(1, len(raw) // size), 2))
    raw[one : one + size], raw[two : two + size] = raw[two : two + size], raw[one : one + size]
    return {**files, made.name: bytes(raw)}


def _misplaced(made: Generations, random: Random) -> Files:
    """A page written to the place of another one."""
    files, raw = _some(made, random)
    size = made.page_bytes
    one, two = (number * size for number in random.sample(range(len(raw) // size), 2))
    raw[two : two + size] = raw[one : one + size]
    return {**files, made.name: bytes(raw)}


def _other_block(made: Generations, random: Random) -> Files:
    """A block of another file, or of another place."""
    files, _ = _some(made, random)
    name = random.choice(list(files))
    raw = bytearray(files[name])
    at = random.randrange(len(raw)) // BLOCK * BLOCK
    sources = (made.killed[made.log], made.closed[made.name], b"a line of text\n" * 400, bytes(BLOCK))
    source = random.choice(sources)
    start = random.randrange(max(1, len(source) - BLOCK)) // BLOCK * BLOCK
    raw[at : at + BLOCK] = source[start : start + BLOCK][: len(raw) - at]
    return {**files, name: bytes(raw)}


def _cut_to_a_page(made: Generations, random: Random) -> Files:
    files, raw = _some(made, random)
    size = random.choice((0, made.page_bytes, random.randrange(0, len(raw), random.choice((BLOCK, made.page_bytes)))))
    return {**files, made.name: bytes(raw[:size])}


def _memory_of_another_boot(made: Generations, random: Random) -> Files:
    return {**made.killed, f"{made.name}-shm": random.choice((bytes(32_768), random.randbytes(32_768), b"short"))}


def _journal_beside(made: Generations, random: Random) -> Files:
    """A rollback journal that belongs to another file."""
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.execute("create table t (x)")
        page = db.serialize("main")
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504)
    raw = random.choice((head + page, random.randbytes(2_000), head[:100]))
    return {**made.closed, f"{made.name}-journal": raw}


def _another_database(made: Generations, random: Random) -> Files:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.pragma("page_size", random.choice((BLOCK, made.page_bytes)))
        db.execute("create table orders (id integer primary key, text)")
        db.execute("insert into orders values (1, 'one')")
        db.pragma("user_version", random.choice((0, 1, 2, 3)))
        raw = db.serialize("main")
    if random.random() < 0.5:
        return {made.name: raw}
    return {made.name: raw, made.log: made.killed[made.log]}


def _of_the_future(made: Generations, random: Random) -> Files:
    raw = bytearray(made.closed[made.name])
    raw[60:64] = random.choice((3, 9, 1 << 30, 0xFFFFFFFF, 0x80000000)).to_bytes(4)  # Of `user_version`.
    return {made.name: bytes(raw)}


MISHAPS: dict[str, _Mishap] = {
    "file without its log": _without_log,
    "log of an earlier time": _log_of_earlier,
    "earlier file, later log": _log_of_later,
    "backup": _backup,
    "copied in part": _copied_in_part,
    "lost writes": _lost_writes,
    "pages swapped": _swapped,
    "page in another's place": _misplaced,
    "block of another file": _other_block,
    "cut to a page": _cut_to_a_page,
    "memory of another boot": _memory_of_another_boot,
    "journal of another file": _journal_beside,
    "another database": _another_database,
    "format of the future": _of_the_future,
    "moved away, with a link": lambda made, random: dict(random.choice((made.closed, made.killed))),
}
"""By name; the last one is a symbolic link to the file, which lies elsewhere with its log."""


def befall(made: Generations, directory: Path, seed: int) -> str:
    """Write a copy of the database into a directory, to which one of these has happened; which."""
    random = Random(seed)
    name = list(MISHAPS)[seed % len(MISHAPS)]
    files = MISHAPS[name](made, random)
    directory.mkdir(parents=True, exist_ok=True)
    place = directory / "elsewhere" if "link" in name else directory
    place.mkdir(exist_ok=True)
    for file, raw in files.items():
        (place / file).write_bytes(raw)
    if place != directory:
        (directory / made.name).symlink_to(place / made.name)
    return name
