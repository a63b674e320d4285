"""How much memory each process of a cast has, and how large the files are, now and then."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.cast import Cast

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Sample:
    """One moment.

    Attributes:
        seconds: since the beginning.
        memory: bytes that each process has in memory, by name; the dead are left out.
        files: bytes of each file, by its place in the directory.
        put, taken: messages until now, by client; faults: until now, by kind.
    """

    seconds: float
    memory: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    put: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def stored(self, name: str) -> int:
        """Bytes of all files of a process."""
        return sum(size for path, size in self.files.items() if owner_of(path) == name)


def owner_of(path: str) -> str:
    """Whose file this is: a directory's, or a client's by the file's name."""
    place, _, name = path.partition("/")
    return name.split(".")[0] if place == "clients" else place


class Sampler:
    """Takes samples of a cast.

    Attributes:
        samples: those taken.
    """

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def take(self, faults: Counter[str]) -> Sample:
        """One more."""
        cast = self._cast
        sample = Sample(round(time.monotonic() - self._began, 1), faults=dict(faults))
        for process in cast.processes:
            with suppress(OSError, IndexError):
                pages = int(Path(f"/proc/{process.running.pid}/statm").read_text().split()[1])
                if pages:
                    sample.memory[process.name] = pages * PAGE_BYTES
        home = cast.cluster.directory
        names = [process.name for process in (*cast.cluster.proxies, *cast.cluster.servers)]
        for place in [*names, "clients"]:
            for path in sorted((home / place).glob("*")):
                with suppress(OSError):
                    if path.suffix in {".db", ".db-wal"}:
                        sample.files[str(path.relative_to(home))] = path.stat().st_size
        sample.put = {process.name: cast.count(process) for process in cast.publishers}
        sample.taken = {process.name: cast.count(process) for process in cast.subscribers}
        self.samples.append(sample)
        return sample


def own_bytes(database: Path) -> tuple[int, int]:
    """Bytes of a client's own tables, and of the history that the test keeps beside them, in a closed database."""
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as opened:
        sizes = dict(opened.execute("select name, sum(pgsize) from dbstat group by name").fetchall())
    history = sum(size for name, size in sizes.items() if name.startswith("history_"))
    return sum(sizes.values()) - history, history
