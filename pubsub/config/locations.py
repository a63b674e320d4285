"""Where files live when nobody says otherwise: the operating system's places, by platformdirs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

APPLICATION: Final = "pirate-pubsub"
"""The folder's name in each place; the distribution's, since `pubsub` is another project's import name too."""


def configuration_file() -> Path:
    """The TOML file that is read when neither --config nor PUBSUB_CONFIG names one; it need not exist."""
    import platformdirs  # noqa: PLC0415  5 ms of a small command, only where it is needed

    return platformdirs.user_config_path(APPLICATION) / "config.toml"


def state_directory(role: str, name: str) -> Path:
    """Where a role's durable state lives by default.

    Args:
        role: "client" or "proxy".
        name: its ID, checked already, so safe as a folder's name.
    """
    import platformdirs  # noqa: PLC0415  as above

    return platformdirs.user_data_path(APPLICATION) / role / name
