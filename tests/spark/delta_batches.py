"""Batches that go to a Delta table as Spark runs them, in processes that die at named steps.

    python -m tests.spark.delta_batches DIRECTORY STEP:BATCH…

For each step, two processes write the table DIRECTORY/STEP-BATCH one after the other, and the first one dies. They are
forked off one that has the imports behind it. It prints how both ended, as JSON.

A batch is written down before it runs, and noted as done behind its commit, as Spark does in a checkpoint. The process
goes on where the last one ended: a batch that is not noted runs again, cut into other files. Steps: `begun` (some of
the rows are in an open file), `written` (all files are complete), `made` (the table exists), `columns` (new columns are
in it), `committed` (before the note).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

import deltalake  # noqa: F401 - before the forks
import pyarrow as pa

from pubsub.spark.delta.files import DataFile, FileWriter
from pubsub.spark.delta.table import Table
from pubsub.spark.sink import publisher_of

QUERY: Final = "7d0c7b4e-query"
BATCHES: Final = 3
ROWS: Final = 100
TOPICS: Final = ("a", "b/1 %")
FIRST: Final = pa.schema([("topic", pa.string()), ("date", pa.string()), ("n", pa.int64()), ("value", pa.binary())])
LATER: Final = FIRST.append(pa.field("note", pa.string()))
"""Columns from the second batch on."""


def rows_of(batch: int) -> pa.RecordBatch:
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    columns = {
        "topic": [TOPICS[number % 2] for number in numbers],
        "date": [f"2024-01-0{1 + number % 3}" for number in numbers],
        "n": list(numbers),
        "value": [b"%d" % number for number in numbers],
        "note": [None if number % 5 else f"note {number}" for number in numbers],
    }
    schema = LATER if batch else FIRST
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


def write(directory: str, batch: int, tasks: int, reach: object = None) -> list[DataFile]:
    """Write the files of a batch, as so many tasks."""
    found = []
    rows = rows_of(batch)
    for task in range(tasks):
        files = FileWriter(directory, rows.schema, ("topic", "date"), publisher_of(QUERY), batch, task)
        part = rows.slice(task * ROWS // tasks, (task + 1) * ROWS // tasks - task * ROWS // tasks)
        files.write(part.slice(0, 10))
        if callable(reach):
            reach("begun", batch)
        files.write(part.slice(10))
        found += files.finish()
    return found


def main(directory: str, step: str, at: int) -> None:
    journal = Path(f"{directory}.journal")
    journal.mkdir(exist_ok=True)

    def reach(name: str, batch: int) -> None:
        if (name, batch) == (step, at) and not (journal / "died").exists():
            (journal / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Table):
        batch = 0

        def _opened(self):  # type: ignore[no-untyped-def]
            made = super()._opened()
            reach("made", self.batch)
            return made

        def _add_columns(self, table):  # type: ignore[no-untyped-def]
            super()._add_columns(table)
            reach("columns", self.batch)

    for batch in range(BATCHES):
        if (journal / f"done-{batch}").exists():
            continue
        repeated = (journal / f"begun-{batch}").exists()
        (journal / f"begun-{batch}").touch()
        files = write(directory, batch, 3 if repeated else 2, reach)
        reach("written", batch)
        table = Dying(directory, QUERY, rows_of(batch).schema, ("topic", "date"))
        table.batch = batch
        table.commit(batch, files)
        reach("committed", batch)
        (journal / f"done-{batch}").touch()


def forked(directory: str, step: str, at: int) -> int:
    """Run `main` in a process of its own; return how it ended, as `subprocess` does."""
    child = os.fork()
    if not child:
        try:
            main(directory, step, at)
        except BaseException as error:  # noqa: BLE001 - the child must not go on as its parent.
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    ended = {}
    for case in sys.argv[2:]:
        step, _, batch = case.partition(":")
        place = (f"{sys.argv[1]}/{step}-{batch}", step, int(batch))
        ended[case] = [forked(*place) for _ in range(2)]
    print(json.dumps(ended))
