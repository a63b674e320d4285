from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pubsub.config import ClientSettings, Loaded, ProxySettings, ServerSettings
from pubsub.config.loading import ROLES, flag_name
from pubsub.console.options import takes_settings
from pubsub.errors import ConfigurationError


def application(role: type, seen: list[Loaded]) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @takes_settings(role)
    def command(loaded: Loaded, topic: str = "none") -> None:
        """Does it."""
        seen.append(loaded)
        seen.append(topic)  # type: ignore[arg-type]

    return app


@pytest.mark.parametrize("role", ROLES)
def test_every_setting_has_an_option_with_help(role: str) -> None:
    shown = CliRunner().invoke(application(ROLES[role], []), ["--help"], env={"COLUMNS": "200"}).output
    for field in fields(ROLES[role]):
        assert f"{flag_name(role, field.name)} " in shown
    assert "--config FILE" in shown
    assert ("--proxies-file FILE" in shown) == (role != "proxy")


def test_options_become_settings_and_the_commands_own_options_stay_separate(tmp_path: Path) -> None:
    seen: list = []
    arguments = ["--id", "s1", "--proxy", "h:1", "--proxy", "h:2", "--dir", str(tmp_path), "--topic", "t"]
    result = CliRunner().invoke(application(ServerSettings, seen), [*arguments, "--backlog-bytes-max", "1 MiB"])
    assert result.exit_code == 0, result.output
    loaded, topic = seen
    assert loaded.settings.proxies == ("tcp://h:1", "tcp://h:2")
    assert loaded.settings.backlog_bytes_max == 2**20
    assert loaded.origins["backlog_bytes_max"] == "--backlog-bytes-max"
    assert topic == "t"


def test_a_truth_value_is_a_switch_both_ways(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[client]\npower_safe = true\n")
    for arguments, expected in (([], True), (["--no-power-safe"], False), (["--power-safe"], True)):
        seen: list = []
        CliRunner().invoke(application(ClientSettings, seen), ["--config", str(file), *arguments])
        assert seen[0].settings.power_safe is expected


def test_an_option_without_effect_is_taken_and_not_listed() -> None:
    seen: list[Loaded] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    @takes_settings(ClientSettings, unused=frozenset({"window"}))
    def command(loaded: Loaded) -> None:
        seen.append(loaded)

    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "--window" not in shown
    assert "--tries N" in shown
    assert CliRunner().invoke(app, ["--window", "7"]).exit_code == 0
    assert seen[0].settings.window == 7
    assert (
        "--window N" in CliRunner().invoke(application(ClientSettings, []), ["--help"], env={"COLUMNS": "200"}).output
    )


def test_a_bad_option_is_refused_by_the_settings_rule() -> None:
    result = CliRunner().invoke(application(ProxySettings, []), ["--id", "p 1", "--bind", "h:1"])
    assert isinstance(result.exception, ConfigurationError)
    assert "proxy id = 'p 1' (from --id) is not allowed" in str(result.exception)


@pytest.mark.parametrize("role", ROLES)
def test_only_numbers_are_shown_as_numbers(role: str) -> None:
    shown = CliRunner().invoke(application(ROLES[role], []), ["--help"], env={"COLUMNS": "200"}).output
    numbers = {flag_name(role, field.name) for field in fields(ROLES[role]) if "int" in str(field.type)}
    assert set(re.findall(r"(--[a-z-]+) N ", shown)) <= numbers
