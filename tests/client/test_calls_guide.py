"""The examples of docs/clients.md, *Calls that happen once*, run and print the output shown there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()


def test_the_lines_of_the_guide_call_once(capsys: pytest.CaptureFixture[str]) -> None:
    (section,) = re.findall(r"^## Calls that happen once\n(.*?)^## ", GUIDE, re.MULTILINE | re.DOTALL)
    (source,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(source, "docs/clients.md", "exec"), {})
    assert capsys.readouterr().out == "b'charged 17' b'charged 17'\n"
