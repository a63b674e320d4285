"""Draws a soak's samples: memory of processes, sizes of files, messages and faults over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

MIB = 1 << 20


def draw(told: dict[str, Any], picture: Path) -> None:
    """Draw what a soak tells into a PNG."""
    samples = told["samples"][:-1]  # In the last one everybody has ended.
    minutes = [sample["seconds"] / 60 for sample in samples]
    figure, ((memory, stores), (clients, messages)) = plt.subplots(2, 2, figsize=(12, 8), sharex=True)
    for name in sorted({name for sample in samples for name in sample["memory"]}):
        spared = name in told["spared"]
        values = [sample["memory"].get(name, float("nan")) / MIB for sample in samples]
        memory.plot(
            minutes,
            values,
            label=name if spared else None,
            linewidth=1.6 if spared else 0.5,
            alpha=1.0 if spared else 0.45,
            color=None if spared else "grey",
        )
    memory.set_title("memory (RSS), MiB; grey: those that are killed now and then")
    for path in sorted({path for sample in samples for path in sample["files"] if path[0] in "sp"}):
        stores.plot(minutes, [sample["files"].get(path, 0) / MIB for sample in samples], label=path, linewidth=1.2)
    stores.set_title("files of servers and proxies, MiB")
    for path in sorted({path for sample in samples for path in sample["files"] if path.startswith("clients/")}):
        if path.endswith(".db"):
            values = [sample["files"].get(path, 0) / MIB for sample in samples]
            clients.plot(minutes, values, label=path.removeprefix("clients/"), linewidth=1.2)
    clients.set_title("databases of clients, MiB (the test's history is in them)")
    messages.plot(minutes, [sum(sample["put"].values()) / 1000 for sample in samples], label="put, thousands")
    for name in samples[-1]["taken"]:
        values = [sample["taken"].get(name, 0) / 1000 for sample in samples]
        messages.plot(minutes, values, label=f"taken by {name}", linewidth=0.9)
    faults = messages.twinx()
    faults.plot(minutes, [sum(sample["faults"].values()) for sample in samples], "k:", label="faults (right)")
    messages.set_title("messages and faults")
    faults.legend(loc="lower right", fontsize=7)
    for axes in (memory, stores, clients, messages):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left", fontsize=7)
    for axes in (clients, messages):
        axes.set_xlabel("minutes")
    figure.suptitle(f"{told['minutes']:g} minutes, seed {told['seed']}, {sum(told['faults'].values())} faults")
    figure.tight_layout()
    figure.savefig(picture, dpi=90)
