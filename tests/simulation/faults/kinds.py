"""What a fault is to those who have it strike."""

from __future__ import annotations

from collections.abc import Callable

Fault = Callable[[], None]
"""Strikes whom chance picks, or nobody where it fits nobody."""
