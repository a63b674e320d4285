"""The command line of `pubsub bench`, and the order of what it does.

Within one repetition every measure has its turn, each right after its floor and right before its rival, so that what
is compared comes from the same seconds; the next repetition begins with an empty directory.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from pubsub.cli.bench.measures import Measure
    from pubsub.cli.bench.table import Results

FLOOR_SHARE: Final = 0.25
"""Seconds of a floor for each second of what it is compared with."""

SIZE_MAX: Final = 1 << 20

WITHOUT_KEYS: Final = "no keys"
"""What a cluster with keys is compared with."""

WITHOUT_STANDBY: Final = "no standby"
"""What a server with a standby is compared with."""

app = typer.Typer(name="bench", rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="On the disk to measure; else the temporary directory.")
    ] = None,
    secs: Annotated[float, typer.Option(min=0.01, max=600, help="Seconds of each measure.")] = 2.0,
    reps: Annotated[int, typer.Option(min=1, max=100, help="Repetitions, interleaved.")] = 3,
    sizes: Annotated[str, typer.Option(metavar="N,N", help="Bytes of a message.")] = "100,1024",
    only: Annotated[str, typer.Option(metavar="NAME,…", help="Only these measures.")] = "",
    against: Annotated[str, typer.Option(metavar="NAME", help="Do the same work through it: redis.")] = "",
    with_keys: Annotated[
        bool, typer.Option("--keys", help="Measure with keys, each measure beside the same without.")
    ] = False,
    with_standby: Annotated[
        bool, typer.Option("--standby", help="Measure a server with a standby, each measure beside the same without.")
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Measure Spark's source and sink instead.")] = False,
    services: Annotated[bool, typer.Option("--services", help="Measure the Majordomo broker instead.")] = False,
    rival: Annotated[
        Path | None, typer.Option("--rival", metavar="DIR", help="With --services: the Guide's Python programs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")] = False,
) -> None:
    """Measure how fast the service is on this machine, beside what the machine can do at all.

    It starts a proxy and a server of its own. A share says how many times its floor a figure is: for rates a bare
    pyzmq echo through a forwarding proxy, for latencies that echo and one fdatasync.
    """
    if services:
        _measure_services(secs, reps, rival, as_json)
        return
    numbers = _numbers(sizes)
    _check(against, spark, with_keys, with_standby)
    # This command's process measures as an application would, with Python's own settings.
    gc.set_threshold(700, 10, 10)
    beside = against or (WITHOUT_KEYS if with_keys else WITHOUT_STANDBY if with_standby else "")
    with _measures(spark, with_standby) as measures, _directory(directory) as place:
        chosen = _chosen(measures, only)
        results = run(chosen, numbers, secs, reps, beside, place)
    if as_json:
        facts = {"machine": _machine(place), "secs": secs, "reps": reps, "keys": with_keys, "against": against}
        facts |= {"standby": True} if with_standby else {}
        facts["results"] = results.facts()
        console.print_json(facts | ({"rival": _rival()} if against else {}))
    else:
        table = results.table(beside)
        if against:
            table.caption, table.caption_justify = _rival(), "left"
        console.print_table(table)


def _measure_services(secs: float, reps: int, rival: Path | None, as_json: bool) -> None:
    from pubsub.cli.bench.services import measure, show

    show(measure(secs, reps, rival), as_json=as_json)


def _check(against: str, spark: bool, with_keys: bool, with_standby: bool) -> None:
    """See that what is asked for goes together."""
    if against not in {"", "redis"}:
        raise ConfigurationError(f"--against {against}: only redis is known")
    if against:
        from pubsub.cli.bench.redis import check_redis

        check_redis()
    if against and spark:
        raise ConfigurationError("--against and --spark: one of them at a time")
    if with_keys and (against or spark):
        raise ConfigurationError("--keys is measured beside the same without keys, not with --against or --spark")
    if with_standby and (against or spark or with_keys):
        raise ConfigurationError("--standby is measured beside the same without, not with --against, --keys or --spark")


def _rival() -> str:
    from pubsub.cli.bench.redis import SETTINGS, versions

    return f"Redis: {versions()}; {SETTINGS}"


@contextmanager
def _measures(spark: bool, standby: bool) -> Iterator[Sequence[Measure]]:
    """What can be measured."""
    if standby:
        from pubsub.cli.bench.standby import STANDBY_MEASURES

        yield STANDBY_MEASURES
    elif spark:
        from pubsub.cli.bench.spark import measures

        with measures() as found:
            yield found
    else:
        from pubsub.cli.bench.measures import MEASURES

        yield MEASURES


def _chosen(measures: Sequence[Measure], only: str) -> list[Measure]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {measure.name: measure for measure in measures}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigurationError(f"--only {unknown[0]}: there is no such measure; there are {', '.join(known)}")
    return [measure for measure in measures if not names or measure.name in names]


def _numbers(sizes: str) -> list[int]:
    words = [word.strip() for word in sizes.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= SIZE_MAX for word in words):
        raise ConfigurationError(f"--sizes {sizes}: numbers from 1 to {SIZE_MAX:,} with commas between them")
    return [int(word) for word in words]


@contextmanager
def _directory(parent: Path | None) -> Iterator[Path]:
    """A directory of our own under `parent`, which is made; removed at the end."""
    try:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="pubsub-bench-", dir=parent) as name:
            yield Path(name)
    except OSError as error:
        raise ConfigurationError(f"--dir {parent or tempfile.gettempdir()}: {error.strerror or error}") from None


def _machine(place: Path) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "directory": str(place.parent),
    }


def run(
    measures: Sequence[Measure], sizes: Sequence[int], secs: float, reps: int, against: str, place: Path
) -> Results:
    """Run measures, interleaved.

    Args:
        measures: which.
        sizes: bytes of a message.
        secs: of each measure.
        reps: how often.
        against: "redis", WITHOUT_KEYS for a cluster with keys beside one that has none, WITHOUT_STANDBY likewise, or ""
            for nothing.
        place: an empty directory on the disk to measure.
    """
    from pubsub.cli.bench.floors import Floors
    from pubsub.cli.bench.redis import RIVALS, Redis
    from pubsub.cli.bench.stage import Stage
    from pubsub.cli.bench.table import Results

    results = Results()
    with Floors(place) as floors, _progress() as step:
        turns = [
            [(measure, size) for measure in measures for size in (sizes if measure.sized else sizes[:1])
             if not (measure.once and rep)]
            for rep in range(reps)
        ]  # fmt: skip
        total = sum(map(len, turns))
        done = 0
        for rep, turn in enumerate(turns):
            with ExitStack() as stack:
                keys, standby = against == WITHOUT_KEYS, against == WITHOUT_STANDBY
                stage = stack.enter_context(Stage(place / f"cluster{rep}", keys=keys, standby=standby))
                plain = stack.enter_context(Stage(place / f"plain{rep}")) if keys or standby else None
                redis = stack.enter_context(Redis(place / f"redis{rep}")) if against == "redis" else None
                for measure, size in turn:
                    step(f"{measure.name}, {size:,} B, {rep + 1} of {reps}", done, total)
                    other = None if measure.paired else plain
                    floor = measure.floor(floors, size, secs * FLOOR_SHARE) if measure.floor else None
                    # Whoever is first has the quieter disk, or the colder one: they take turns.
                    rivals = measure.run(other, size, secs) if other is not None and rep % 2 else None
                    figures = measure.run(stage, size, secs)
                    rival = RIVALS.get(measure.name)
                    if redis is not None and rival is not None:
                        rivals = rival(redis, size, secs)
                    elif other is not None and rivals is None:
                        rivals = measure.run(other, size, secs)
                    results.add(measure.name, size, measure.units, figures, floor, rivals)
                    done += 1
        step("done", total, total)
    return results


@contextmanager
def _progress() -> Iterator[Any]:
    """A function that shows how far it is; redrawn between measures only, so that no measure pays for it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.completed:g} of {task.total:g}"), TimeElapsedColumn(),
               TextColumn("{task.description}"))  # fmt: skip
    screen = Console(file=sys.stderr)
    with Progress(*columns, console=screen, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("starting", total=0)

        def step(text: str, done: int, total: int) -> None:
            progress.update(task, description=text, completed=done, total=total)
            progress.refresh()

        yield step
