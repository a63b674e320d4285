"""The metrics of a process at one moment, as values that never change.

The loop makes a snapshot between two turns when another thread asks for it, and that thread writes it out. The thread
sees nothing else of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pubsub.base.histograms import Counted


class Gauge(NamedTuple):
    """A number that rises and falls.

    Attributes:
        name: without the role's prefix, with its unit at the end.
        help: one sentence.
    """

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


class Distribution(NamedTuple):
    """A histogram.

    Attributes:
        name: without the role's prefix, with its unit at the end.
        help: one sentence.
    """

    name: str
    help: str
    counted: Counted


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The metrics of one process.

    Attributes:
        role: "proxy", "relay" or "server".
        unready: short reason why the process cannot serve now, "" if it can.
        counters: the counters of its report, by name.
        gauges: gauges with the same name are adjacent and have the same labels.
    """

    role: str
    id: str
    unready: str
    counters: Mapping[str, int]
    gauges: tuple[Gauge, ...] = ()
    distributions: tuple[Distribution, ...] = field(default=())
