"""The type of a fault."""

from __future__ import annotations

from collections.abc import Callable

Fault = Callable[[], None]
"""Acts on a target picked by chance, or on none if none fits."""
