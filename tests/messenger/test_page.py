"""The examples of docs/messenger.md run and print the shown output."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "messenger.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS, ids=["without keys", "with keys"])
def test_each_example_runs(source, capsys):
    exec(compile(source, PAGE.name, "exec"), {})
    assert capsys.readouterr().out == "[b'paid 12.50']\n"
