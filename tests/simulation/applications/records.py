"""The content of an application's own tables, which its handlers and transactions write, and of its dead letters."""

from __future__ import annotations

from typing import Any

import apsw

from tests.simulation.applications.program import Program
from tests.simulation.applications.taking import Taking
from tests.simulation.disk import NAME
from tests.simulation.history import Seen


class Records:
    """The tables of one program."""

    def __init__(self, program: Program, taking: Taking) -> None:
        self.program, self.taking, self.history = program, taking, program.history
        self._letters: dict[str, set[str]] = {}
        """Bodies of dead letters, by topic."""
        self.letters: set[str] = set()
        """Bodies of all dead letters in the client's table."""
        self.handled: list[tuple[str, str]] = []
        """Topic and body of all handled messages, in order."""
        self._aside: list[Seen] = []
        """Those of them that were put aside before: they keep no order with the others."""

    def collect(self) -> None:
        """Read the tables, as they are on the disk now."""
        name = self.program.name
        tables = self._tables()
        if tables is None:
            return
        found, letters, tokens = tables
        self.handled = [(row[0], row[1]) for row in found]
        rows = [row[:5] for row in found if not row[5]]
        self._aside = [Seen(*row[:4], -1e9) for row in found if row[5]]
        self.history.rows[name] = {row[1] for row in found} | tokens
        for reading in self.program.readings():
            first = self.taking.first_asked.get(reading.topic, {})
            lines = self.taking.lines.get(reading.topic, {})
            reading.handled = [
                Seen(topic, body, position, stamp, first.get(body, 0.0), bool(doubtful), lines.get(body, -1),
                     reading.directory)
                for topic, body, position, stamp, doubtful in rows
                if topic == reading.topic
            ]  # fmt: skip
            texts = [bytes(body).decode() for topic, body in letters if topic == reading.topic]
            self._add_letters(reading.topic, texts, {body for topic, body in self.handled if topic == reading.topic})

    def _tables(self) -> tuple[list[Any], list[Any], set[str]] | None:
        """Return handled messages, dead letters and tokens of transactions; None: there are no tables yet."""
        name, node = self.program.name, self.program.node
        if node.database:
            return node.world.databases.tables_of(node)
        path = f"/{name}/{name}.db"
        if path not in node.host.disk.files:
            return None
        db = apsw.Connection(path, vfs=NAME)
        db.pragma("locking_mode", "exclusive")
        try:
            tables = {table for (table,) in db.execute("select name from sqlite_schema")}
            if "seen" not in tables:
                return None
            found = list(db.execute("select topic, body, id, stamp, doubtful, aside from seen order by n"))
            letters = list(db.execute("select topic, body from pubsub_dead_letters where body is not null"))
            return found, letters, {token for (token,) in db.execute("select token from sent")}
        finally:
            db.close()

    def _add_letters(self, topic: str, texts: list[str], handled: set[str]) -> None:
        """Where a dead letter stands between the others is not recorded; that it came, and once, is."""
        self.letters |= set(texts)
        for text in texts:
            if text in handled:
                self.history.violate(f"{self.program.name} recorded {text} and has it among the dead letters")
            self._letters.setdefault(topic, set()).add(text)

    def settle_letters(self) -> None:
        """Count dead letters as delivered, and messages that were put aside: they are parts of their own."""
        name = self.program.name
        self.program.retries.judge(self.handled)
        for seen in self._aside:
            self.history.readings[name, seen.topic].parts.insert(0, [seen])
        for topic, texts in self._letters.items():
            reading = self.history.readings[name, topic]
            for text in sorted(texts):
                put = self.history.puts.get(text)
                if put is None or put.topic != topic:
                    self.history.violate(f"{name} buried {text!r}, which nobody put to {topic}")
                else:
                    reading.parts.insert(0, [Seen(topic, text, f"x{text}.1", 1e12)])
                if (topic, text) not in self.taking.tried and not (self.program.node.cut_off or self.program.life):
                    self.history.violate(f"{name} buried {text} of {topic}, which no handler was given")
