"""What a process tells of itself at one moment: values that nobody changes any more.

The loop makes a snapshot, between two turns, when somebody asks for one; another thread writes it out. Nothing else of
the loop's is ever looked at from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pubsub.base.histograms import Counted


class Gauge(NamedTuple):
    """A number that goes up and down.

    Attributes:
        name: behind the role's prefix, with its unit at the end.
        help: what it is, in a sentence.
        value: now.
        labels: what is told apart, by name.
    """

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class Distribution(NamedTuple):
    """A histogram.

    Attributes:
        name: behind the role's prefix, with its unit at the end.
        help: what is counted, in a sentence.
        counted: its values.
    """

    name: str
    help: str
    counted: Counted


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A process.

    Attributes:
        role: "proxy" or "server".
        id: its name.
        unready: why it cannot serve yet, or not now, in a few words; "" where it can.
        counters: what its report counts, by name.
        gauges: those with the same name stand together, and have the same labels.
        distributions: its histograms.
    """

    role: str
    id: str
    unready: str
    counters: Mapping[str, int]
    gauges: tuple[Gauge, ...] = ()
    distributions: tuple[Distribution, ...] = field(default=())
