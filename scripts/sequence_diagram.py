"""Draws a Mermaid sequence diagram as SVG, for the site (docs/conf.py).

GitHub draws the same text by itself. Only the part of Mermaid that these documents use is read:

    sequenceDiagram
        participant C as client
        C->>S: an arrow
        S-->>C: a dashed arrow
        C-xS: an arrow that does not arrive
        C->>C: a step of one participant
        Note over C: a note

Lines and text have the colour of the page's text, so that one drawing serves light and dark pages.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

CHARACTER: Final = 6.7
"""Width of an average character, in pixels at the size of FONT."""

FONT: Final = 13
LINE: Final = 16
GAP_MIN: Final = 130
WRAP: Final = 26
"""Characters of a line of text."""

MARGIN: Final = 16
LOOP: Final = 26
"""Width of the arrow of a step that leads back to its participant."""

PARTICIPANT: Final = re.compile(r"participant (\w+)(?: as (.+))?")
ARROW: Final = re.compile(r"(\w+?)(-->>|->>|-x)(\w+): (.+)")
NOTE: Final = re.compile(r"Note over (\w+): (.+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the diagram. `arrow` is "" for a note."""

    start: str
    end: str
    arrow: str
    lines: tuple[str, ...]

    @property
    def width(self) -> float:
        return max(map(len, self.lines)) * CHARACTER

    @property
    def height(self) -> int:
        return len(self.lines) * LINE + 14


def read(source: str) -> tuple[dict[str, str], list[Step]]:
    """Return the participants' labels by name, and the steps.

    Raises:
        ValueError: a line is not of the part of Mermaid that is read here.
    """
    first, *lines = [line.strip() for line in source.strip().splitlines() if line.strip()]
    if first != "sequenceDiagram":
        raise ValueError(f"a diagram begins with sequenceDiagram, not with {first!r}")
    labels: dict[str, str] = {}
    steps = []
    for line in lines:
        if found := PARTICIPANT.fullmatch(line):
            labels[found[1]] = found[2] or found[1]
        elif found := ARROW.fullmatch(line):
            steps.append(Step(found[1], found[3], found[2], _wrapped(found[4])))
        elif found := NOTE.fullmatch(line):
            steps.append(Step(found[1], found[1], "", _wrapped(found[2])))
        else:
            raise ValueError(f"this line of a diagram cannot be drawn: {line!r}")
    unknown = {name for step in steps for name in (step.start, step.end)} - labels.keys()
    if unknown:
        raise ValueError(f"no participant has the name {', '.join(sorted(unknown))}")
    return labels, steps


def _wrapped(text: str) -> tuple[str, ...]:
    return tuple(textwrap.wrap(text, WRAP))


def _columns(labels: dict[str, str], steps: list[Step]) -> tuple[dict[str, float], float]:
    """Return the place of each participant's line, and the width of the drawing."""
    names = list(labels)
    gaps = [max(GAP_MIN, (len(labels[a]) + len(labels[b])) * CHARACTER / 2 + 40) for a, b in pairwise(names)]
    right = len(labels[names[-1]]) * CHARACTER / 2 + 2 * MARGIN
    for step in steps:
        low, high = sorted((names.index(step.start), names.index(step.end)))
        if low != high:
            missing = step.width + 30 - sum(gaps[low:high])
            for index in range(low, high):
                gaps[index] += max(0, missing) / (high - low)
        elif high == len(gaps):
            right = max(right, step.width + LOOP + MARGIN)
        else:
            gaps[high] = max(gaps[high], step.width + LOOP + 20)
    place = max(len(labels[names[0]]) * CHARACTER / 2 + MARGIN, 50.0)
    places = {}
    for name, gap in zip(names, [*gaps, right], strict=True):
        places[name] = place
        place += gap
    return places, place


def _text(lines: tuple[str, ...], x: float, y: float, anchor: str) -> str:
    rows = "".join(
        f'<text x="{x:.0f}" y="{y + LINE * index:.0f}" text-anchor="{anchor}">{escape(line)}</text>'
        for index, line in enumerate(lines)
    )
    return f'<g stroke="none" fill="currentColor">{rows}</g>'


def _head(x: float, y: float, way: int, arrow: str) -> str:
    if arrow == "-x":
        middle = x - way * 12
        return f'<path d="M{middle - 5:.0f} {y - 5:.0f}l10 10m0 -10l-10 10" stroke-width="2"/>'
    return (
        f'<path d="M{x - way * 9:.0f} {y - 4:.0f}L{x:.0f} {y:.0f}L{x - way * 9:.0f} {y + 4:.0f}z" fill="currentColor"/>'
    )


def _drawn(step: Step, places: dict[str, float], top: float) -> str:
    start, end = places[step.start], places[step.end]
    bottom = top + step.height - 6
    if not step.arrow:
        box = (
            f'<rect x="{start - 5:.0f}" y="{top:.0f}" width="{step.width + 22:.0f}" height="{step.height - 6}" rx="3"/>'
        )
        return box.replace("/>", ' fill="none" stroke-dasharray="2 3"/>') + _text(
            step.lines, start + 6, top + 15, "start"
        )
    if start == end:
        path = f'<path d="M{start:.0f} {top + 6:.0f}h18v14h-18" fill="none"/>'
        return path + _head(start, top + 20, -1, step.arrow) + _text(step.lines, start + LOOP, top + 16, "start")
    way = 1 if end > start else -1
    dashes = ' stroke-dasharray="5 4"' if step.arrow == "-->>" else ""
    short = way * 12 if step.arrow == "-x" else 0
    line = f'<path d="M{start:.0f} {bottom:.0f}H{end - short:.0f}" fill="none"{dashes}/>'
    return line + _head(end, bottom, way, step.arrow) + _text(step.lines, (start + end) / 2, top + 12, "middle")


def svg(source: str) -> str:
    """Return the diagram as an `svg` element.

    Raises:
        ValueError: as `read`.
    """
    labels, steps = read(source)
    places, width = _columns(labels, steps)
    top, head = 2 * MARGIN + LINE, 28
    drawn = []
    for step in steps:
        drawn.append(_drawn(step, places, top))
        top += step.height
    height = top + MARGIN
    heads = []
    for name, x in places.items():
        wide = len(labels[name]) * CHARACTER + 20
        heads.append(f'<path d="M{x:.0f} {head + 2}V{height - 4:.0f}" stroke-opacity="0.35"/>')
        heads.append(f'<rect x="{x - wide / 2:.0f}" y="2" width="{wide:.0f}" height="{head}" rx="4" fill="none"/>')
        heads.append(_text((labels[name],), x, 21, "middle"))
    title = escape(f"Sequence of messages between {', '.join(labels.values())}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="{FONT}" stroke="currentColor" color="inherit">'
        f"{''.join(heads + drawn)}</svg>"
    )
