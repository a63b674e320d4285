"""The page of limits names existing limits, with the values that a reader would look up."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from pubsub.base import limits
from pubsub.config.loading import ROLES
from pubsub.config.settings import ProxySettings, ServerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
NAMES = sorted(set(re.findall(r"`([A-Z][A-Z_]+[A-Z])`", PAGE)))
SOURCES = {path: path.read_text() for path in (ROOT / "pubsub").rglob("*.py")}


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_on_the_page_exists(name: str) -> None:
    assert any(re.search(rf"^{name}: Final\b", text, re.MULTILINE) for text in SOURCES.values())


@pytest.mark.parametrize("line", [line for line in PAGE.splitlines() if "/" in line and line.startswith("| `")])
def test_a_limit_is_defined_in_the_module_that_the_page_names(line: str) -> None:
    for found in re.finditer(r"\(`([a-z_]+/[a-z_]+\.py)`\)", line):
        text = SOURCES[ROOT / "pubsub" / found[1]]
        name = re.findall(r"`(\w+)`", line[: found.start()])[-1]
        assert re.search(rf"^(class )?{name}\b", text, re.MULTILINE), name


def test_each_setting_on_the_page_exists() -> None:
    known = {field.name for settings in ROLES.values() for field in fields(settings)}
    for line in PAGE.splitlines():
        if "(setting" in line:
            named = re.findall(r"`([a-z_]+)`", line.partition("(setting")[0])
            assert named
            assert set(named) <= known


def test_values_on_the_page_are_those_of_the_code() -> None:
    defaults = {
        (settings, field.name): field.default
        for settings in (ProxySettings, ServerSettings)
        for field in fields(settings)
    }
    assert "4 GiB of a proxy's process, 8 GiB of a server's" in PAGE
    assert [defaults[role, "memory_bytes_max"] >> 30 for role in (ProxySettings, ServerSettings)] == [4, 8]
    assert (
        f"{defaults[ProxySettings, 'topics_max']:,} of a proxy, {defaults[ServerSettings, 'topics_max']:,} of a" in PAGE
    )
    assert f"{limits.STORE_PUBLISHERS_MAX:,} of a store" in PAGE
    assert f"{limits.BODY_BYTES_MAX >> 20} MiB + {limits.HEADER_LENGTH_MAX >> 10} KiB for a frame" in PAGE
