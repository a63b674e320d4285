"""The command line of `python -m benchmarks`: all that `pubsub bench` measures and more, beside floors and rivals.

Within one repetition every measure has its turn, each right after its floor and right before its rival, so that
compared figures come from the same seconds; the next repetition begins with an empty directory.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pubsub import console
from pubsub.cli.bench.command import (
    AsJson,
    Directory,
    Only,
    Repetitions,
    Seconds,
    Sizes,
    Turn,
    choose,
    directory_in,
    machine,
    read_sizes,
    run,
)
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from benchmarks.measures import Measure
    from pubsub.cli.bench.measures import Figures

WITHOUT_KEYS: Final = "no keys"
"""The variant that a cluster with keys is compared with."""

WITHOUT_STANDBY: Final = "no standby"
"""The variant that a server with a standby is compared with."""

app = typer.Typer(name="benchmarks", rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command()
def bench(
    directory: Directory = None,
    secs: Seconds = 2.0,
    reps: Repetitions = 3,
    sizes: Sizes = "100,1024",
    only: Only = "",
    against: Annotated[str, typer.Option(metavar="NAME", help="Do the same work through it: redis.")] = "",
    with_keys: Annotated[
        bool, typer.Option("--keys", help="Measure with keys, each measure beside the same without.")
    ] = False,
    with_standby: Annotated[
        bool, typer.Option("--standby", help="Measure a server with a standby, each measure beside the same without.")
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Measure Spark's source and sink instead.")] = False,
    over_http: Annotated[bool, typer.Option("--http", help="Measure a gateway instead.")] = False,
    services: Annotated[bool, typer.Option("--services", help="Measure the Majordomo broker instead.")] = False,
    rival: Annotated[
        Path | None, typer.Option("--rival", metavar="DIR", help="With --services: the Guide's Python programs.")
    ] = None,
    workers: Annotated[
        bool, typer.Option("--workers", help="Measure the processor time of a worker of services instead.")
    ] = False,
    retention: Annotated[
        bool, typer.Option("--retention", help="Measure kept messages that go, and topics with settings, instead.")
    ] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Measure old records taken from the begin, beside waiting ones, instead.")
    ] = False,
    groups: Annotated[
        bool, typer.Option("--groups", help="Measure consumer groups instead, beside peers that run here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how fast the service is on this machine, beside the limits of the machine itself.

    It starts a proxy and a server of its own. A share says how many times its floor a figure is: for rates a bare
    pyzmq echo through a forwarding proxy, for latencies that echo and one fdatasync.
    """
    chosen = {"services": services, "workers": workers, "retention": retention, "replay": replay, "groups": groups}
    for name, measure in _INSTEAD.items():
        if chosen[name]:
            measure(Asked(secs, reps, directory, rival, as_json))
            return
    numbers = read_sizes(sizes)
    _check(against, spark, with_keys, with_standby, over_http)
    beside = against or (WITHOUT_KEYS if with_keys else WITHOUT_STANDBY if with_standby else "")
    with _measures(spark, with_standby, over_http) as measures, directory_in(directory) as place:
        turns = _turns(choose(measures, only), numbers, reps)
        facts = {"machine": machine(place), "secs": secs, "reps": reps, "keys": with_keys, "against": against}
        facts |= {"standby": True} if with_standby else {}
        _measure(turns, secs, place, beside, facts if as_json else None)


def _measure(
    turns: list[list[tuple[Measure, int]]], secs: float, place: Path, beside: str, facts: dict[str, Any] | None
) -> None:
    """Measure, and print a table, or JSON with these facts."""
    from benchmarks.floors import Floors

    gc.set_threshold(700, 10, 10)  # This process measures as an application would, with Python's own settings.
    results = run(turns, secs, Floors(place), partial(repetition, place, beside))
    rival = _rival() if beside == "redis" else ""
    if facts is not None:
        console.print_json(facts | {"results": results.facts()} | ({"rival": rival} if rival else {}))
        return
    table = results.table(beside)
    if rival:
        table.caption, table.caption_justify = rival, "left"
    console.print_table(table)


@dataclass(frozen=True)
class Asked:
    """Options of the measurements of a kind of their own."""

    secs: float
    reps: int
    directory: Path | None
    rival: Path | None
    as_json: bool


def _measure_services(asked: Asked) -> None:
    from benchmarks.services import measure, show

    show(measure(asked.secs, asked.reps, asked.rival), as_json=asked.as_json)


def _measure_workers(asked: Asked) -> None:
    from benchmarks.service_workers import REQUESTS, measure, show

    show(measure(REQUESTS, asked.reps), as_json=asked.as_json)


def _measure_retention(asked: Asked) -> None:
    """Measure with the promised sizes from a second on; less makes all smaller."""
    from benchmarks.retention import measure, show

    runs = []
    for rep in range(asked.reps):
        with directory_in(asked.directory) as place:
            runs.append(measure(place / f"run{rep}", min(1.0, asked.secs)))
    show(runs, as_json=asked.as_json)


def _measure_replay(asked: Asked) -> None:
    """Measure a million records from a second on; less makes them fewer."""
    from benchmarks.replay import measure, show

    with directory_in(asked.directory) as place:
        show(measure(place, min(1.0, asked.secs), asked.reps), as_json=asked.as_json)


def _measure_groups(asked: Asked) -> None:
    """Measure with all records from a second on; less makes them fewer."""
    from benchmarks.groups.report import measure, show

    with directory_in(asked.directory) as place:
        show(measure(place, min(1.0, asked.secs), asked.reps), as_json=asked.as_json)


_INSTEAD: Final[dict[str, Callable[[Asked], None]]] = {
    "services": _measure_services,
    "workers": _measure_workers,
    "retention": _measure_retention,
    "replay": _measure_replay,
    "groups": _measure_groups,
}
"""Measurements of a kind of their own, by their option; the first one that is given counts."""


def _check(against: str, spark: bool, with_keys: bool, with_standby: bool, over_http: bool) -> None:
    """Check that the options go together."""
    if over_http and (against or spark or with_keys or with_standby):
        raise ConfigurationError("--http: alone")
    if against not in {"", "redis"}:
        raise ConfigurationError(f"--against {against}: only redis is known")
    if against and spark:
        raise ConfigurationError("--against and --spark: one of them at a time")
    if with_keys and (against or spark):
        raise ConfigurationError("--keys is measured beside the same without keys, not with --against or --spark")
    if with_standby and (against or spark or with_keys):
        raise ConfigurationError("--standby is measured beside the same without, not with --against, --keys or --spark")
    if against:
        from benchmarks.redis import check_redis

        check_redis()


def _rival() -> str:
    from benchmarks.redis import SETTINGS, versions

    return f"Redis: {versions()}; {SETTINGS}"


@contextmanager
def _measures(spark: bool, standby: bool, over_http: bool) -> Iterator[Sequence[Measure]]:
    """All measures of one kind."""
    if over_http:
        from benchmarks import http

        yield http.measures()
        return
    if standby:
        from benchmarks.standby import STANDBY_MEASURES

        yield STANDBY_MEASURES
    elif spark:
        from benchmarks.spark import measures

        with measures() as found:
            yield found
    else:
        from benchmarks.measures import MEASURES

        yield MEASURES


def _turns(measures: Sequence[Measure], sizes: Sequence[int], reps: int) -> list[list[tuple[Measure, int]]]:
    return [
        [(measure, size) for measure in measures for size in (sizes if measure.sized else sizes[:1])
         if not (measure.once and rep)]
        for rep in range(reps)
    ]  # fmt: skip


@contextmanager
def repetition(place: Path, against: str, rep: int) -> Iterator[Turn]:
    """The clusters of one repetition, with the rival that measures are compared with.

    Args:
        place: a directory on the disk to measure.
        against: "redis", WITHOUT_KEYS for a cluster with keys beside one that has none, WITHOUT_STANDBY likewise, or ""
            for nothing.
        rep: which repetition.
    """
    from benchmarks.redis import RIVALS, Redis
    from benchmarks.stage import Stage

    keys, standby = against == WITHOUT_KEYS, against == WITHOUT_STANDBY
    with ExitStack() as stack:
        stage = stack.enter_context(Stage(place / f"cluster{rep}", keys=keys, standby=standby))
        plain = stack.enter_context(Stage(place / f"plain{rep}")) if keys or standby else None
        redis = stack.enter_context(Redis(place / f"redis{rep}")) if against == "redis" else None

        def take(measure: Measure, size: int, secs: float) -> tuple[Figures, Figures | None]:
            other = None if measure.paired else plain
            # The first one has the quieter disk, or the colder one: they take turns.
            rivals = measure.run(other, size, secs) if other is not None and rep % 2 else None
            figures = measure.run(stage, size, secs)
            rival = RIVALS.get(measure.name)
            if redis is not None and rival is not None:
                rivals = rival(redis, size, secs)
            elif other is not None and rivals is None:
                rivals = measure.run(other, size, secs)
            return figures, rivals

        yield take


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks; the exit code."""
    return console.run(app, "python -m benchmarks", argv)
