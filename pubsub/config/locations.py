"""Define default locations of files: the operating system's places, by platformdirs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

APPLICATION: Final = "pirate-pubsub"
"""Name of the folder in each place. It is the distribution's name, since another project also has the import name
`pubsub`.
"""


def configuration_file() -> Path:
    """Return the TOML file to read if neither --config nor PUBSUB_CONFIG names one; it need not exist."""
    import platformdirs  # noqa: PLC0415  5 ms of a small command, only where it is needed

    return platformdirs.user_config_path(APPLICATION) / "config.toml"


def state_directory(role: str, name: str) -> Path:
    """Return the default directory of a role's durable state.

    Args:
        role: "client" or "proxy".
        name: its ID, checked already, so safe as a folder's name.
    """
    import platformdirs  # noqa: PLC0415  as above

    return platformdirs.user_data_path(APPLICATION) / role / name
