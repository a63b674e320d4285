"""Diagrams of the documents: each is drawn, and a line that cannot be drawn is an error."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from sequence_diagram import read, svg

ROOT = Path(__file__).parents[2]
DIAGRAM = re.compile(r"^```mermaid\n(.+?)^```$", re.MULTILINE | re.DOTALL)
DIAGRAMS = {
    f"{page.stem}-{number}": source
    for page in sorted((ROOT / "docs/explanation").glob("*.md"))
    for number, source in enumerate(DIAGRAM.findall(page.read_text()), 1)
}
SMALL = """
sequenceDiagram
    participant C as client
    participant S as server
    C->>S: 1 PUT
    S->>S: 2 commit & fsync
    S-->>C: 3 STATUS
    C-xS: 4 lost
    Note over C: done
"""


def test_put_get_merge_failover_and_a_call_have_a_diagram() -> None:
    assert {name.rpartition("-")[0] for name in DIAGRAMS} >= {"put", "get", "merge", "failover", "calls"}


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_of_the_documents_has_each_text_and_stays_within_its_size(name: str) -> None:
    drawn = ET.fromstring(svg(DIAGRAMS[name]))
    labels, steps = read(DIAGRAMS[name])
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [*labels.values(), *(line for step in steps for line in step.lines)]
    width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
    for text in drawn.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
    assert width < 900


def test_arrows_steps_and_notes_are_read() -> None:
    labels, steps = read(SMALL)
    assert labels == {"C": "client", "S": "server"}
    assert [(step.start, step.arrow, step.end) for step in steps] == [
        ("C", "->>", "S"),
        ("S", "->>", "S"),
        ("S", "-->>", "C"),
        ("C", "-x", "S"),
        ("C", "", "C"),
    ]
    assert "2 commit &amp; fsync" in svg(SMALL)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("graph TD", "begins with sequenceDiagram"),
        ("sequenceDiagram\n loop forever", "cannot be drawn"),
        ("sequenceDiagram\n participant A\n A->>B: hello", "no participant has the name B"),
    ],
)
def test_a_line_that_cannot_be_drawn_is_an_error(source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        svg(source)
