"""How to install it: from a clone, since it is on no index, and each extra by the name that it has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = {"dev", "docs", "lakes"}
"""Extras of those who work on it."""


def test_every_extra_is_in_the_page_and_no_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| `pip install '\.\[([\w,]+)\]'` \|$", (ROOT / "docs/install.md").read_text(), re.M
    )
    assert {name for name, _ in rows} == extras.keys() - OWN
    assert all(name in installed.split(",") for name, installed in rows)


def test_no_page_claims_that_an_index_has_the_package() -> None:
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "pubsub").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in places
        for line in path.read_text().splitlines()
        if re.search(r"pip install '?pirate-pubsub(?!\[\w+\] @ file:)", line)
    ]
    assert not found


def test_the_extras_in_errors_and_pages_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    places = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "pubsub").rglob("*.py")]
    named = {
        extra
        for path in places
        for words in re.findall(r"pip install (?:-\S+ )*'\.\[([\w,]+)\]'", path.read_text())
        for extra in words.split(",")
    }
    assert {"http", "spark"} <= named <= extras.keys()
