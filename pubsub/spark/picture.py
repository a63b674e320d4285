"""Draws counts by time: a line for each of the largest, and one line for all others together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from matplotlib.figure import Figure

LINES_MAX: Final = 10
OTHERS: Final = "others"


def lines(rows: Sequence[tuple[datetime, str, int]]) -> dict[str, dict[datetime, int]]:
    """Return counts by label and time, the largest first; labels beyond LINES_MAX are summed as `others`."""
    totals: Counter[str] = Counter()
    for _, label, count in rows:
        totals[label] += count
    shown = [label for label, _ in totals.most_common(LINES_MAX)]
    times = sorted({start for start, _, _ in rows})
    found = {label: dict.fromkeys(times, 0) for label in (*shown, *([OTHERS] if len(totals) > len(shown) else []))}
    for start, label, count in rows:
        found[label if label in shown else OTHERS][start] += count
    return found


def draw(rows: Sequence[tuple[datetime, str, int]], title: str, file: str) -> None:
    """Write the picture in the format of the file name's suffix.

    Args:
        rows: start of a window, label, count.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes: Any = figure.add_subplot()  # The type stubs do not allow dates.
    for label, counts in lines(rows).items():
        style = {"color": "0.5", "linestyle": ":"} if label == OTHERS else {"marker": "."}
        axes.plot(list(counts), list(counts.values()), linewidth=1, label=label, **style)
    axes.set_title(title)
    axes.set_ylabel("messages")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if rows:
        axes.legend(fontsize="small", loc="upper left")
    figure.savefig(file, dpi=110)
