"""The values of a group that is made without them."""

from __future__ import annotations

from typing import Final

PARTS: Final = 256
"""Parts of a keyed group."""

LOST_MS: Final = 600_000
"""Silence after which `redeliver` gives up the claims of a member (milliseconds)."""

ATTEMPTS: Final = 5
"""Attempts after which a record becomes a dead letter."""
