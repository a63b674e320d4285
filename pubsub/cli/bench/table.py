"""Results: each figure in every repetition, with its floor and rival of the same seconds, as table and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(slots=True)
class Series:
    """One figure over the repetitions.

    Attributes:
        size: bytes of a message.
        values: one for each repetition.
        floors: the machine's limit in the same seconds; empty if the figure has no floor.
        rivals: the same figure of the compared software; empty without one.
    """

    measure: str
    figure: str
    size: int
    unit: str
    values: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    rivals: list[float] = field(default_factory=list)

    @property
    def more_is_better(self) -> bool:
        """True for a rate, False for a time."""
        return self.unit.endswith("/s")

    @property
    def share(self) -> float | None:
        """How many times its floor the figure is, as the median over the repetitions; None without a floor."""
        if not self.floors:
            return None
        return median([value / floor for value, floor in zip(self.values, self.floors, strict=True)])

    @property
    def ratio(self) -> float | None:
        """How many times as good as the rival it is, as the median over the repetitions; None without a rival.

        Repetitions with a figure of 0, such as an idle process without CPU time, are left out.
        """
        pairs = zip(self.values, self.rivals, strict=bool(self.rivals))
        found = [ours / theirs if self.more_is_better else theirs / ours for ours, theirs in pairs if ours and theirs]
        return median(found) if found else None

    def facts(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "measure": self.measure, "figure": self.figure, "size": self.size, "unit": self.unit,
            **_spread(self.values),
        }  # fmt: skip
        if self.floors:
            out |= {"floor": _spread(self.floors), "share": self.share}
        if self.rivals:
            out |= {"rival": _spread(self.rivals), "ratio": self.ratio}
        return out


def _spread(values: list[float]) -> dict[str, Any]:
    return {"median": median(values), "min": min(values), "max": max(values), "values": values}


class Results:
    def __init__(self) -> None:
        self._series: dict[tuple[str, int, str], Series] = {}

    def add(
        self,
        measure: str,
        size: int,
        units: dict[str, str],
        figures: dict[str, float],
        floor: float | None,
        rivals: dict[str, float] | None,
    ) -> None:
        """Add the figures of one repetition of a measure.

        Args:
            floor: floor of the first figure and of all figures with its unit.
            rivals: the rival's figures, as far as it has them.
        """
        first = next(iter(units.values()))
        for figure, value in figures.items():
            key = (measure, size, figure)
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = Series(measure, figure, size, units[figure])
            series.values.append(value)
            if floor is not None and series.unit == first:
                series.floors.append(floor)
            if rivals is not None and figure in rivals:
                series.rivals.append(rivals[figure])

    def facts(self) -> list[dict[str, Any]]:
        return [series.facts() for series in sorted(self._series.values(), key=self._order)]

    def _order(self, series: Series) -> tuple[int, int]:
        """Sort key that keeps the sizes of one measure together."""
        names = list(dict.fromkeys(one.measure for one in self._series.values()))
        return names.index(series.measure), series.size

    def table(self, rival: str) -> Table:
        """Return the results for a person; `rival` is the name of the compared software, "" for none."""
        from pubsub.console.terminal import table

        made = table(
            "measure", "bytes", "figure", "median", "min", "max", "unit", "floor", "share",
            *((rival, "ratio") if rival else ()),
        )  # fmt: skip
        for column in made.columns[3:6] + made.columns[7:]:
            column.justify = "right"
        before: tuple[str, int] | None = None
        for one in sorted(self._series.values(), key=self._order):
            shown = (one.measure, one.size) != before
            before = one.measure, one.size
            row = [one.measure if shown else "", f"{one.size:,}" if shown else "", one.figure]
            row += [_short(value) for value in (median(one.values), min(one.values), max(one.values))]
            row += [one.unit, _short(median(one.floors)) if one.floors else "", _times(one.share)]
            if rival:
                row += [_short(median(one.rivals)) if one.rivals else "", _times(one.ratio)]
            made.add_row(*row)
        return made


def _times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f} x"


def _short(value: float) -> str:
    """Format a number with three significant digits."""
    if value >= 10_000:
        digits = len(str(int(value)))
        return f"{round(value, 3 - digits):,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
