"""Measure groups and peers, and print tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.groups import peers
from benchmarks.groups.handover import IDLE, idle, in_doubt, unclaimed
from benchmarks.groups.shares import MEMBERS, Figures, fast, peer, slow
from benchmarks.stage import Stage
from pubsub import console

RECORDS: Final = 10_000
"""Records that a group takes with an effect each."""

TAKEN: Final = 100_000
"""Records that a group takes in batches, without an effect."""

KILLS: Final = 3
IDLE_SECONDS: Final = 10.0
PEERS: Final = ("redis", "nats")

Facts = dict[str, Any]


def measure(directory: Path, scale: float, reps: int) -> Facts:
    """Return all figures.

    Args:
        scale: 1.0 for the promised sizes; less makes all smaller.
    """
    facts: Facts = {"load": _load(), "peers": {}}
    sizes = {"process": _thousands(RECORDS, scale), "take": _thousands(TAKEN, scale)}
    with Stage(directory / "groups") as stage:
        facts |= fast(stage, sizes, reps)
    for name in PEERS:
        fewer = {way: records // 10 if name == "nats" else records for way, records in sizes.items()}
        facts["peers"][name] = peers.missing(name) or peer(
            name, directory, {way: max(1_000, records // 1_000 * 1_000) for way, records in fewer.items()}
        )
    with Stage(directory / "slow") as stage:
        facts["slow"] = slow(stage, 2.0 * scale)
    with Stage(directory / "kills") as stage:
        facts["unclaimed"] = [unclaimed(stage) for _ in range(KILLS)]
        facts["in doubt"] = [in_doubt(stage) for _ in range(KILLS)]
    with Stage(directory / "idle") as stage:
        facts["idle"] = idle(stage, max(1.0, IDLE_SECONDS * scale))
    return facts


def _load() -> float:
    """The load of the machine, by which a reader judges the figures."""
    return float(Path("/proc/loadavg").read_text(encoding="ascii").split()[0])


def _thousands(records: float, scale: float) -> int:
    return max(1_000, int(records * scale) // 1_000 * 1_000)


def show(facts: Facts, *, as_json: bool) -> None:
    """Print the figures: medians over the repetitions; ratios are of a repetition."""
    if as_json:
        console.print_json(facts)
        return
    table = console.table("what", "members", "records/s", "to the single one", "member, µs", "server, µs", "proxy, µs")
    for way in ("process", "take"):
        rows: list[Figures] = facts[way]
        single = {row["rep"]: row["rate"] for row in rows if not row["members"]}
        for members in (0, *MEMBERS):
            own = [row for row in rows if row["members"] == members]
            ratio = median(row["rate"] / single[row["rep"]] for row in own)
            costs = [f"{_middle(own, role):.1f}" for role in ("client", "server", "proxy")]
            table.add_row(way, str(members or "single"), f"{_middle(own, 'rate'):,.0f}", f"{ratio:.2f}", *costs)
        for name, found in facts["peers"].items():
            for row in found[way] if not isinstance(found, str) else ():
                own_cost = f"{row['client']:.1f}"
                table.add_row(f"{way}, {name}", f"{row['members']:.0f}", f"{row['rate']:,.0f}", "", own_cost, "", "")
    for row in facts["slow"]:
        costs = [f"{row[role]:.1f}" for role in ("client", "server", "proxy")]
        bound = f"{row['share']:.2f} of the bound"
        table.add_row("slow handlers", f"{row['members']:.0f}", f"{row['rate']:,.0f}", bound, *costs)
    times = console.table("time", "median", "least", "most")
    for what, word, line in (
        ("unclaimed", "seconds", "SIGKILL to unclaimed work at another member"),
        ("in doubt", "seconds", "client opened again to the handler of what was in doubt"),
        ("in doubt", "with the start", "… from the start of its process"),
    ):
        found = sorted(row[word] for row in facts[what])
        times.add_row(line, *(f"{seconds:.2f} s" for seconds in (median(found), found[0], found[-1])))
    for role in ("server", "proxy"):
        times.add_row(f"{IDLE:,} members idle, {role}", f"{facts['idle'][role]:.1f} % of a core", "", "")
    lacking = [f"{name}: {found}" for name, found in facts["peers"].items() if isinstance(found, str)]
    times.caption, times.caption_justify = "; ".join(lacking) or None, "left"
    console.print_table(table, times)


def _middle(rows: Iterable[Figures], word: str) -> float:
    return median(row[word] for row in rows)


def _range(found: list[float]) -> str:
    return f"{median(found):.2f} s ({found[0]:.2f} … {found[-1]:.2f})"
