"""The command line of `pubsub bench`, and the order of its measures.

A repetition runs every measure once, each right after its floor, so that compared figures come from the same seconds.
The next repetition begins with an empty directory.
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
"""Seconds of a floor for each second of its measure."""

SIZE_MAX: Final = 1 << 20

Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Directory on the disk to measure; default: that of temporary files."),
]
Seconds = Annotated[float, typer.Option(min=0.01, max=600, help="Duration of each measure, in seconds.")]
Repetitions = Annotated[int, typer.Option(min=1, max=100, help="How often each measure is repeated.")]
Sizes = Annotated[str, typer.Option(metavar="N,N", help="Message sizes in bytes.")]
Only = Annotated[str, typer.Option(metavar="NAME,…", help="Only these measures, such as put-1,consume; default: all.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]

Turn = Callable[[Any, int, float], tuple["Figures", "Figures | None"]]
"""Runs a measure with a message size for some seconds; returns its figures, and those of the rival if there is one."""

M = TypeVar("M", bound="Measure")

app = typer.Typer(name="bench", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def bench(
    directory: Directory = None, secs: Seconds = 2.0, reps: Repetitions = 3, sizes: Sizes = "100,1024",
    only: Only = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure the speed of puts and gets on this machine.

    It starts its own proxy and server. Measures: sync-put (one put at a time), put-1, put-100 and put-1000 (messages
    of a batch, without waiting), and consume.

    "floor" is the time of one fdatasync of 4 KiB on this disk. "share" is the figure divided by the floor. In a clone,
    scripts/bench measures more.
    """
    from pubsub.cli.bench.floors import Disk
    from pubsub.cli.bench.measures import MEASURES

    turns = [[(measure, size) for measure in choose(MEASURES, only) for size in read_sizes(sizes)]] * reps
    gc.set_threshold(700, 10, 10)  # Measure with Python's default settings, as an application runs.
    with directory_in(directory) as place:
        results = run(turns, secs, Disk(place), partial(_alone, place))
        facts = {"machine": machine(place), "secs": secs, "reps": reps, "results": results.facts()}
    if as_json:
        console.print_json(facts)
    else:
        console.print_table(results.table(""))


@contextmanager
def _alone(place: Path, rep: int) -> Iterator[Turn]:
    """One cluster without a rival."""
    from pubsub.cli.bench.stage import Stage

    with Stage(place / f"cluster{rep}") as stage:
        yield lambda measure, size, secs: (measure.run(stage, size, secs), None)


def choose(measures: Sequence[M], only: str) -> list[M]:
    """Return the measures with these names, or all for "".

    Raises:
        ConfigurationError: there is no measure of that name.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {measure.name: measure for measure in measures}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigurationError(f"--only {unknown[0]}: there is no such measure; choose from {', '.join(known)}")
    return [measure for measure in measures if not names or measure.name in names]


def read_sizes(sizes: str) -> list[int]:
    """Parse message sizes in bytes.

    Raises:
        ConfigurationError: a size is not valid.
    """
    words = [word.strip() for word in sizes.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= SIZE_MAX for word in words):
        raise ConfigurationError(f"--sizes {sizes}: give numbers from 1 to {SIZE_MAX:,} with commas between them")
    return [int(word) for word in words]


@contextmanager
def directory_in(parent: Path | None) -> Iterator[Path]:
    """Make a temporary directory under `parent`, which is made too; it is removed at the end.

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
    """Return the facts about this machine that a result needs."""
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
        turns: for each repetition its measures, each with a message size in bytes.
        secs: seconds of each measure.
        floors: the disk floor, measured next to them.
        repetition: starts the cluster for a repetition, by its number.
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
                    # Redraw between measures only, so that it costs no measure time.
                    progress.update(task, description=f"{measure.name}, {size:,} B, {rep + 1} of {len(turns)}")
                    progress.refresh()
                    floor = measure.floor(floors, size, secs * FLOOR_SHARE) if measure.floor else None
                    figures, rivals = take(measure, size, secs)
                    results.add(measure.name, size, measure.units, figures, floor, rivals)
                    progress.advance(task)
    return results
