"""Settings that a program makes itself obey the rules of the configuration file."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pubsub import embedded
from pubsub.config import ClientSettings, ServerSettings, load
from pubsub.config.loading import ROLES
from pubsub.errors import CallerError, ConfigurationError, SettingRefused

NEEDED: dict[str, dict[str, Any]] = {
    "proxy": {"id": "p1", "bind": "tcp://127.0.0.1:5601", "directory": Path("data")},
    "server": {"id": "s1", "proxies": ("tcp://127.0.0.1:5602",), "directory": Path("data")},
    "client": {},
}

REFUSED: list[tuple[str, str, Any]] = [
    ("client", "tries", 0),
    ("client", "tries", 2.5),
    ("client", "tries", True),
    ("client", "tries", None),
    ("client", "window", 0),
    ("client", "window", "many"),
    ("client", "timeout_seconds", -1),
    ("client", "timeout_seconds", float("inf")),
    ("client", "timeout_seconds", None),
    ("client", "try_seconds", float("nan")),
    ("client", "power_safe", 1),
    ("client", "proxies", ()),
    ("client", "proxies", 5),
    ("client", "proxies", [b"tcp://127.0.0.1:1"]),
    ("client", "proxies", ["tcp://127.0.0.1:99999"]),
    ("client", "directory", 5),
    ("client", "record", 1),
    ("client", "publisher_bytes", 1 << 30),
    ("server", "id", "a b"),
    ("server", "bind", "nowhere"),
    ("server", "topics_max", 0),
    ("server", "answer_bytes_max", "1 GiB"),
    ("server", "liveness", 0),
    ("server", "retention_hold_seconds", 12.9),
    ("server", "bind", "tcp://*:7000"),
    ("proxy", "servers_max", 0),
    ("proxy", "startup_wait_seconds", -1),
    ("proxy", "directory", None),
    ("proxy", "heartbeat_seconds", "often"),
]


@pytest.mark.parametrize(("role", "setting", "value"), REFUSED)
def test_a_bad_value_is_refused_at_once_with_the_settings_name(role: str, setting: str, value: Any) -> None:
    with pytest.raises(SettingRefused, match=rf"^{role} {setting} = .* is not allowed; ") as raised:
        ROLES[role](**(NEEDED[role] | {setting: value}))
    error = raised.value
    assert "\n" not in str(error)
    assert (error.role, error.setting, error.value) == (role, setting, value)
    assert isinstance(error, ConfigurationError)


def test_a_changed_copy_of_settings_is_checked_too() -> None:
    with pytest.raises(SettingRefused, match=r"^client window = 0 is not allowed; allowed: a whole number of batches"):
        replace(ClientSettings(), window=0)


def test_a_program_accepts_the_values_of_the_file_with_the_same_meaning(tmp_path: Path) -> None:
    file = tmp_path / "pubsub.toml"
    file.write_text('[client]\nproxies = ["127.0.0.1:5"]\noutbox_bytes_max = "64 MiB"\ndirectory = "~/x"\n')
    made = ClientSettings(proxies=["127.0.0.1:5"], outbox_bytes_max="64 MiB", directory="~/x")  # type: ignore[arg-type]
    assert made == load(ClientSettings, environment={}, file=file).settings
    assert made.outbox_bytes_max == 64 << 20
    assert made.directory == Path.home() / "x"


@pytest.mark.parametrize("role", ROLES)
def test_settings_travel_to_another_process(role: str) -> None:
    made: Any = ROLES[role](**NEEDED[role])
    assert pickle.loads(pickle.dumps(made)) == made


def test_an_embedded_cluster_refuses_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingRefused, match=r"^server topics_max = 0"):
        embedded(tmp_path, server=lambda settings: replace(settings, topics_max=0))
    with pytest.raises(CallerError, match=r"^server gives a ServerSettings, not NoneType"):
        embedded(tmp_path, server=lambda settings: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(CallerError, match=r"^proxy gives a ProxySettings, not ServerSettings"):
        embedded(tmp_path, proxy=lambda _: ServerSettings(**NEEDED["server"]))  # type: ignore[arg-type, return-value]
    with pytest.raises(CallerError, match=r"^server is a function"):
        embedded(tmp_path, server=5)  # type: ignore[arg-type]
    with embedded(tmp_path, proxy=lambda settings: replace(settings, topics_max=3)):
        pass  # The failed opening has left nothing in use.
