"""The command line of `pubsub bench`, and the order of what it does.

Within one repetition every measure has its turn, each right after its floor, so that what is compared comes from the
same seconds; the next repetition begins with an empty directory.
"""

from __future__ import annotations

import gc
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from pubsub import console
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from pubsub.cli.bench.floors import Disk
    from pubsub.cli.bench.measures import Figures, Measure
    from pubsub.cli.bench.table import Results

FLOOR_SHARE: Final = 0.25
"""Seconds of a floor for each second of what it is compared with."""

SIZE_MAX: Final = 1 << 20

Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="On the disk to measure; else the temporary directory.")
]
Seconds = Annotated[float, typer.Option(min=0.01, max=600, help="Seconds of each measure.")]
Repetitions = Annotated[int, typer.Option(min=1, max=100, help="Repetitions, interleaved.")]
Sizes = Annotated[str, typer.Option(metavar="N,N", help="Bytes of a message.")]
Only = Annotated[str, typer.Option(metavar="NAME,…", help="Only these measures.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]

Turn = Callable[[Any, int, float], tuple["Figures", "Figures | None"]]
"""Takes a measure with bodies of a size for some seconds: its figures, and those of what it is compared with."""

M = TypeVar("M", bound="Measure")

app = typer.Typer(name="bench", rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    directory: Directory = None, secs: Seconds = 2.0, reps: Repetitions = 3, sizes: Sizes = "100,1024",
    only: Only = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure how fast the service is on this machine: puts, gets, and how long a put takes.

    It starts a proxy and a server of its own. A share says how many times its floor a figure is, an fdatasync of
    4 KiB. A checkout measures more: scripts/bench.
    """
    from pubsub.cli.bench.floors import Disk
    from pubsub.cli.bench.measures import MEASURES

    turns = [[(measure, size) for measure in choose(MEASURES, only) for size in read_sizes(sizes)]] * reps
    gc.set_threshold(700, 10, 10)  # Measured as an application would, with Python's own settings.
    with directory_in(directory) as place:
        results = run(turns, secs, Disk(place), partial(_alone, place))
        facts = {"machine": machine(place), "secs": secs, "reps": reps, "results": results.facts()}
    if as_json:
        console.print_json(facts)
    else:
        console.print_table(results.table(""))


@contextmanager
def _alone(place: Path, rep: int) -> Iterator[Turn]:
    """One cluster, compared with nothing."""
    from pubsub.cli.bench.stage import Stage

    with Stage(place / f"cluster{rep}") as stage:
        yield lambda measure, size, secs: (measure.run(stage, size, secs), None)


def choose(measures: Sequence[M], only: str) -> list[M]:
    """The measures that are asked for by name; "": all.

    Raises:
        ConfigurationError: a name is none.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {measure.name: measure for measure in measures}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigurationError(f"--only {unknown[0]}: there is no such measure; there are {', '.join(known)}")
    return [measure for measure in measures if not names or measure.name in names]


def read_sizes(sizes: str) -> list[int]:
    """Bytes of messages, from text.

    Raises:
        ConfigurationError: they are none.
    """
    words = [word.strip() for word in sizes.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= SIZE_MAX for word in words):
        raise ConfigurationError(f"--sizes {sizes}: numbers from 1 to {SIZE_MAX:,} with commas between them")
    return [int(word) for word in words]


@contextmanager
def directory_in(parent: Path | None) -> Iterator[Path]:
    """A directory of our own under `parent`, which is made; removed at the end.

    Raises:
        ConfigurationError: it cannot be made.
    """
    try:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="pubsub-bench-", dir=parent) as name:
            yield Path(name)
    except OSError as error:
        raise ConfigurationError(f"--dir {parent or tempfile.gettempdir()}: {error.strerror or error}") from None


def machine(place: Path) -> dict[str, Any]:
    """Where it was measured."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "directory": str(place.parent),
    }


def run(
    turns: Sequence[Sequence[tuple[Measure, int]]],
    secs: float,
    floors: Disk,
    repetition: Callable[[int], AbstractContextManager[Turn]],
) -> Results:
    """Run measures, interleaved.

    Args:
        turns: for each repetition its measures, each with the bytes of a message.
        secs: of each measure.
        floors: what is measured beside them.
        repetition: starts what the measures of a repetition, by its number, run on.
    """
    from rich.console import Console
    from rich.progress import Progress

    from pubsub.cli.bench.table import Results

    results = Results()
    with floors, Progress(console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task("starting", total=sum(map(len, turns)))
        for rep, turn in enumerate(turns):
            with repetition(rep) as take:
                for measure, size in turn:
                    # Redrawn between measures only, so that no measure pays for it.
                    progress.update(task, description=f"{measure.name}, {size:,} B, {rep + 1} of {len(turns)}")
                    progress.refresh()
                    floor = measure.floor(floors, size, secs * FLOOR_SHARE) if measure.floor else None
                    figures, rivals = take(measure, size, secs)
                    results.add(measure.name, size, measure.units, figures, floor, rivals)
                    progress.advance(task)
    return results
