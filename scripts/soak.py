"""Soak: real processes under steady traffic and random faults for so many minutes, and the checker at the end.

    scripts/soak --minutes N [--seed N] [--audit] [--keys] [--picture FILE] [--samples FILE] [--dir DIR] [--keep]

Two proxies behind relays, three servers, publishers and subscribers of many kinds: `tests/faults/cast.py` says which,
`tests/faults/disorder.py` what is done to them, `tests/faults/checker.py` what must not happen. The faults are drawn
from the seed, which is printed; when they meet the traffic is the machine's affair. One process of each role is spared
the kills, so that its memory can be followed. With --keys nobody is let in without one, and each second somebody whom
nobody knows is authorized, or not any more. Exit code 1 if there is anything to object to; the directory stays then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 5.0
SHOWN_SECONDS = 15.0
TICK_SECONDS = 0.02
QUIET_SECONDS = 10.0
"""After the last fault: what was held up is caught up with, and goes."""

STORE_BYTES_MAX = 160 << 20
"""Of one server: its write-ahead log (some 32 MB), what waits, and what stays for the hold."""

MEMORY_BYTES_MAX = 300 << 20
"""Of one process."""

MIB = 1 << 20


RELOAD_SECONDS = 1.0
"""Between two changes of who is authorized."""


class Reloads:
    """Somebody whom nobody knows is authorized and revoked, again and again: nobody else may notice."""

    def __init__(self, keys: Any) -> None:
        self._keys, self.count, self._due = keys, 0, 0.0

    def tick(self, now: float) -> None:
        """Change it where it is time to."""
        from pubsub.cli.authorizing import authorize_line, revoke_lines
        from pubsub.security.authorized import parse_name
        from pubsub.security.pairs import new_pair

        if self._keys is None or now < self._due:
            return
        self._due = now + RELOAD_SECONDS
        if self.count % 2:
            revoke_lines(self._keys.authorized, "stranger", None, None)
        else:
            authorize_line(self._keys.authorized, *parse_name("client", "stranger"), new_pair().public, ["put=*"])
        self.count += 1


def soak(
    directory: Path, seed: int, minutes: float, record: Path | None = None, *, keys: bool = False
) -> dict[str, Any]:
    """Run it; all that is to be told of it.

    Args:
        record: where clients write down what they do, for the audit.
        keys: let nobody in without one.
    """
    from tests.faults.cast import SPARED, Cast
    from tests.faults.disorder import Disorder
    from tests.faults.sampling import Sampler

    started = time.monotonic()
    audited: dict[str, int] = {}
    with Cast(directory, seed, record, keys=keys) as cast:
        disorder, sampler, reloads = Disorder(cast, Random(seed)), Sampler(cast), Reloads(cast.cluster.keys)
        end = time.monotonic() + minutes * 60
        due = shown = 0.0
        while (now := time.monotonic()) < end:
            cast.look_after()
            disorder.tick()
            reloads.tick(now)
            if now >= due:
                due = now + SAMPLE_SECONDS
                sample = sampler.take(disorder.done)
                slower = cast.hold_back()
                if now >= shown:
                    shown = now + SHOWN_SECONDS
                    print(_progress(sample, len(cast.objections), slower), flush=True)
            time.sleep(TICK_SECONDS)
        disorder.finish()
        _quiet(cast, min(QUIET_SECONDS, minutes * 30))
        sampler.take(disorder.done)
        print("all is healed; everybody finishes what it has", flush=True)
        cast.finish()
        sampler.take(disorder.done)
        print("the checker reads", flush=True)
        objections = [*cast.objections, *grown(sampler.samples), *_judge(cast)]
    if record is not None:
        print("the audit reads", flush=True)
        audited = _audit(record, objections)
    return {
        "machine": _machine(),
        "seed": seed,
        "minutes": minutes,
        "seconds": round(time.monotonic() - started, 1),
        "faults": dict(disorder.done),
        "outcomes": dict(disorder.outcomes) | ({"reloads": reloads.count} if keys else {}),
        "spared": sorted(SPARED),
        "objections": [asdict(one) for one in objections],
        "samples": [asdict(one) for one in sampler.samples],
        "figures": _figures(cast, sampler.samples),
        "audit": audited,
    }


def _quiet(cast: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cast.look_after()
        time.sleep(TICK_SECONDS)


def _progress(sample: Any, objections: int, slower: bool) -> str:
    put, taken = sum(sample.put.values()), max(sample.taken.values())
    stores = sum(size for path, size in sample.files.items() if path[:1] == "s") / MIB
    return (
        f"{sample.seconds:6.0f} s  put {put:7}  taken {taken:7}{' (put less)' if slower else ''}"
        f"  faults {sum(sample.faults.values()):4}  memory {sum(sample.memory.values()) / MIB:5.0f} MiB"
        f"  stores {stores:4.0f} MiB  objections {objections}"
    )


def grown(samples: list[Any]) -> list[Any]:
    """Objections to memory and stores beyond their bounds, one for each process."""
    from tests.faults.checker import Objection

    out = {}
    for sample in samples:
        for name, size in sample.memory.items():
            if size > MEMORY_BYTES_MAX:
                out["memory", name] = f"{name} had {size / MIB:.0f} MiB after {sample.seconds:.0f} s"
        for path, size in sample.files.items():
            if path[:1] == "s" and size > STORE_BYTES_MAX:
                out["store", path] = f"{path} had {size / MIB:.0f} MiB after {sample.seconds:.0f} s"
    return [Objection(kind, text) for (kind, _), text in out.items()]


def _judge(cast: Any) -> list[Any]:
    from tests.faults.cast import SKEW_SECONDS
    from tests.faults.checker import check

    state = cast.cluster.state
    publishers, subscribers = (
        [state(process.name) for process in processes] for processes in (cast.publishers, cast.subscribers)
    )
    return [
        *check(publishers, subscribers, skew=SKEW_SECONDS),
        *check([state("filler")], [state("hoarder")], skew=SKEW_SECONDS),
    ]


def _audit(record: Path, objections: list[Any]) -> dict[str, int]:
    """The second judge, which knows only what clients recorded; what it counted."""
    from contextlib import closing

    from pubsub.spark.audit import Audit
    from pubsub.spark.session import start
    from tests.faults.checker import Objection

    spark = start()
    with closing(Audit(spark, [str(record)], drained=True)) as audit:
        for flaw in audit.flaws():
            text = f"{flaw.subscriber}: {flaw.topic} {flaw.publisher} {flaw.counter} {flaw.id}: {flaw.reason}"
            objections.append(Objection(f"audit {flaw.kind}", text))
        counts = audit.counts()
    spark.stop()
    return counts


def _figures(cast: Any, samples: list[Any]) -> dict[str, Any]:
    """Messages; and memory and files at start, middle and end."""
    from tests.faults.checker import read_puts, read_subscriber
    from tests.faults.sampling import own_bytes, owner_of

    state = cast.cluster.state
    puts = {process.name: read_puts(state(process.name)) for process in cast.publishers}
    clients = [process.name for process in (*cast.publishers, *cast.subscribers)]
    lived = samples[:-1]  # In the last one they have ended.
    moments = {"start": lived[len(lived) // 10], "middle": lived[len(lived) // 2], "end": lived[-1]}
    return {
        "topics": len(cast.topics) + 1,
        "put": {name: len(few) for name, few in puts.items()},
        "in doubt": sum(one.acknowledged == float("inf") for few in puts.values() for one in few),
        "delivered": {process.name: len(read_subscriber([state(process.name)]).seen) for process in cast.subscribers},
        "bulk put": len(read_puts(state("filler"))),
        "memory": {
            name: {moment: sample.memory.get(name, 0) for moment, sample in moments.items()}
            for name in sorted({name for sample in lived for name in sample.memory})
        },
        "files": {
            name: {moment: sample.stored(name) for moment, sample in moments.items()}
            for name in sorted({owner_of(path) for sample in lived for path in sample.files})
        },
        "client tables": {name: dict(zip(("own", "history"), own_bytes(state(name)), strict=True)) for name in clients},
    }


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}"


def show(told: dict[str, Any]) -> None:
    """The table at the end."""
    figures = told["figures"]
    print(f"\n{told['minutes']:g} minutes, seed {told['seed']}, {told['machine']}")
    print("faults      " + ", ".join(f"{kind} {count}" for kind, count in sorted(told["faults"].items())))
    print("outcomes    " + ", ".join(f"{what} {count}" for what, count in sorted(told["outcomes"].items())))
    print(f"put         {sum(figures['put'].values())}, of these in doubt {figures['in doubt']}: {figures['put']}")
    print(f"delivered   {sum(figures['delivered'].values())}: {figures['delivered']}; bulk {figures['bulk put']}")
    print(f"\n{'MiB':<28}{'start':>9}{'middle':>9}{'end':>9}")
    for what in ("memory", "files"):
        for name, moments in figures[what].items():
            spared = " (never killed)" if what == "memory" and name in told["spared"] else ""
            print(
                f"{f'{what} {name}':<28}"
                + "".join(f"{moments[one] / MIB:9.1f}" for one in ("start", "middle", "end"))
                + spared
            )
    for name, sizes in figures["client tables"].items():
        print(
            f"{f'tables {name}':<28} its own {sizes['own'] / 1024:.0f} KiB, history {sizes['history'] / 1024:.0f} KiB"
        )
    if told["audit"]:
        print("audit       " + ", ".join(f"{what.replace('_', ' ')} {count}" for what, count in told["audit"].items()))
    kinds = Counter(one["kind"] for one in told["objections"])
    named = ("lost", "repeated", "order", "silence", "foreign", "halves")
    print("\nobjections  " + ", ".join(f"{kind} {kinds[kind]}" for kind in [*named, *sorted(set(kinds) - set(named))]))
    for one in told["objections"][:20]:
        print(f"  {one['kind']}: {one['text']}")


def _draw(told: dict[str, Any], picture: Path) -> None:
    try:
        from soak_picture import draw
    except ImportError as error:
        print(f"no picture: {error}; pip install '.[plot]' in a clone")
        return
    draw(told, picture)
    print(f"the picture is {picture}")


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long there are faults (default: 5)")
    parser.add_argument("--seed", type=int, help="what the faults are drawn from; else a new one")
    parser.add_argument("--audit", action="store_true", help="have clients record, and judge that too; needs Spark")
    parser.add_argument(
        "--keys", action="store_true", help="let nobody in without a key, and change who is each second"
    )
    parser.add_argument("--picture", type=Path, help="where it goes (default: soak.png in the directory)")
    parser.add_argument("--samples", type=Path, help="where they go, as JSON (default: soak.json in the directory)")
    where = "where everything lives; else a new one for temporary files"
    parser.add_argument("--dir", dest="directory", metavar="DIR", type=Path, help=where)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the processes' files though all was well")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    home = (given.directory or Path(tempfile.mkdtemp(prefix="soak-"))).resolve()
    run = home / "run"
    run.mkdir(parents=True)
    samples, picture = given.samples or home / "soak.json", given.picture or home / "soak.png"
    again = f"scripts/soak --minutes {given.minutes:g} --seed {seed}{' --keys' * given.keys}"
    print(f"seed {seed}: {again}; everything is in {home}", flush=True)
    told = soak(run, seed, given.minutes, run / "record.jsonl" if given.audit else None, keys=given.keys)
    samples.write_text(json.dumps(told, separators=(",", ":")))
    show(told)
    print(f"the samples are {samples}")
    _draw(told, picture)
    if told["objections"]:
        print(f"what there is to look at is in {run}")
        return 1
    if not given.keep:
        shutil.rmtree(run)
    print("nothing to object to")
    return 0


if __name__ == "__main__":
    sys.exit(main())
