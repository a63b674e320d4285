"""Run rounds of faults, and judge what they left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.postgres.ledger import Writers, differences, ledger_of
from tests.postgres.rounds import audit
from tests.postgres.rounds.faults import Faults
from tests.postgres.rounds.stage import Stage

WRITERS: Final = 2
SAID_ROUNDS: Final = 10
SHORT_ROUNDS: Final = 50
"""A run of at most so many rounds shows each of them."""

PAUSE_SECONDS: Final = 0.3
"""Between two transactions of a writer: the consumers, which commit each message alone, must keep up."""


def run(rounds: int, seed: int, directory: Path, say: Callable[[str], Any] = lambda text: None) -> list[str]:
    """Run rounds; return what is wrong at the end."""
    with Stage(directory, seed) as stage:
        faults = Faults(stage, Random(seed))
        writers = Writers(stage.postgres.url(stage.database), WRITERS, seed, PAUSE_SECONDS)
        writers.held = stage.held
        with writers:
            for number in range(1, rounds + 1):
                began = time.monotonic()
                try:
                    faults.one()
                except BaseException:
                    for process in stage.all:
                        say(f"{process.name}: {process.lines('')[-2:]}, {process.running.poll()}")
                        say(process.errors.read_text()[-2_000:])
                    raise
                if rounds <= SHORT_ROUNDS:
                    say(f"round {number}: {faults.last}, {time.monotonic() - began:.1f} s")
                if number % SAID_ROUNDS == 0 or number == rounds:
                    traffic = f"{writers.committed:,} committed, {stage.reader.counts.total():,} messages"
                    say(f"round {number}: {traffic}, {dict(sorted(faults.done.items()))}")
        stage.finish()
        facts = audit.read(stage.postgres.url(stage.database), directory)
        found = audit.objections(facts)
        with stage.postgres.connect(stage.database) as connection:
            found += differences(ledger_of(connection), dict(stage.reader.received), writers.spans)
    rows = sum(map(len, facts.ledger.values()))
    effects = sum(map(len, facts.effects.values()))
    say(
        f"{rows:,} rows, {effects:,} effects, {stage.reader.counts.total():,} messages, {len(facts.intents):,} puts in"
        f" transactions, {len(facts.returned):,} of {len(facts.begun):,} puts alone returned,"
        f" {writers.rolled_back:,} rolled back, {faults.cuts} cuts at a statement; errors of calls:"
        f" {dict(stage.errors)}; wrong: {len(found)}"
    )
    return found
