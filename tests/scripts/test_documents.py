"""The targets of references in documents and docstrings exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from rules_page import anchor, rules, rules_of

from tests.simulation.breakages.table import BREAKAGES

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CITED = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md)((?:(?:, and|,| and) (?:\*[^*]+\*|[A-Z]{1,2}\d+\b))*)")
MISTAKE = re.compile(r"^\| (?:`` (.*?) ``|`([^`]+)`) \|.*?`(tests/[\w/]+\.py)(?:::(\w+)|`)", re.MULTILINE)
SECTION = re.compile(r"\*([^*]+)\*")
NUMBER = re.compile(r"\b[A-Z]{1,2}\d+\b")
CHECKED = ("docs/explanation/", "docs/decisions/")
"""Folders of pages that are cited by their names alone; other names may be a test's own, or another project's."""

LINKED_RULE = re.compile(r"\[([A-Z]{1,2}\d+)\]\(([^)\s]*)\)")


def files(*patterns: str) -> list[Path]:
    said = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / line for line in said.stdout.splitlines()]


def headings(page: Path) -> set[str]:
    return {line.lstrip("#").strip() for line in page.read_text().splitlines() if re.match(r"#+ ", line)}


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in headings(page)}


def test_every_link_of_a_document_leads_somewhere() -> None:
    lost = []
    for page in files("*.md"):
        for target in LINK.findall(page.read_text()):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            found = page.parent / name if name else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert lost == []


def citations(text: str) -> list[tuple[str, list[str], list[str]]]:
    """Return each citation: the page, its sections and its rules. It may go on in the next line of a comment."""
    text = re.sub(r"\s*\n\s*(?:# )?", " ", text)
    return [(page, SECTION.findall(what), NUMBER.findall(SECTION.sub("", what))) for page, what in CITED.findall(text)]


def missing(text: str) -> list[str]:
    """Return the citations of pages, sections and rules that do not exist."""
    lost = []
    for name, sections, numbers in citations(text):
        page = ROOT / name
        if not page.is_file():
            lost += [name] if sections or numbers or name.startswith(CHECKED) else []
            continue
        lost += [f"{name}, *{section}*" for section in sections if section not in headings(page)]
        lost += [f"{name}, {number}" for number in numbers if number not in {rule.name for rule in rules_of(page)}]
    return lost


def test_every_page_section_and_rule_that_is_cited_exists() -> None:
    lost, sections, numbers = [], 0, 0
    for file in files("pubsub/*.py", "tests/*.py", "tests/*.toml", "scripts/*", "benchmarks/*.py", "*.md"):
        if file.suffix == ".png" or file == Path(__file__):
            continue
        text = file.read_text()
        lost += [f"{file.relative_to(ROOT)}: {citation}" for citation in missing(text)]
        sections += sum(len(found) for _, found, _ in citations(text))
        numbers += sum(len(found) for _, _, found in citations(text))
    assert lost == []
    assert sections > 40
    assert numbers > 200


def uncited(names: Iterable[Path]) -> list[str]:
    """Return the rules that no citation in these files names, each with its page."""
    cited = {
        (Path(page).name, rule) for file in names for page, _, found in citations(file.read_text()) for rule in found
    }
    return [f"{rule.page}, {rule.name}" for rule in rules() if (rule.page, rule.name) not in cited]


def test_code_or_a_test_cites_each_rule() -> None:
    code = [file for file in files("pubsub/*.py", "tests/*.py", "tests/*.toml") if file != Path(__file__)]
    assert uncited(code) == [], "cite it at the place that enforces it, or in the test that proves it"
    assert "put.md, P4" in uncited([file for file in code if not file.name.endswith("outbox.py")])
    assert len(uncited([])) == len(rules())


def test_a_citation_of_a_page_a_section_or_a_rule_that_is_gone_is_found() -> None:
    put = "docs/explanation/put.md"
    assert missing(f"({put}, P3), ({put}, P1 and P2), {put}, *The chain* and *The way of a put*; {put}.") == []
    assert missing(f"{put}, P99") == [f"{put}, P99"]
    assert missing(f"# {put}, *The\n# chain*, and G1") == [f"{put}, G1"]
    assert missing(f"{put}, *The chains*") == [f"{put}, *The chains*"]
    assert missing("see docs/explanation/gone.md") == ["docs/explanation/gone.md"]
    assert missing("docs/architecture.md, *Merge*") == ["docs/architecture.md, *Merge*"]


def test_a_link_named_after_a_rule_leads_to_its_section() -> None:
    places = {(rule.name, rule.page): anchor(rule.heading) for rule in rules()}
    lost, linked = [], 0
    for page in files("*.md"):
        for number, target in LINKED_RULE.findall(page.read_text()):
            linked += 1
            name, _, heading = target.partition("#")
            place = places.get((number, Path(name).name or page.name))
            if place is None or (heading and heading != place):
                lost.append(f"{page.relative_to(ROOT)}: [{number}]({target})")
    assert lost == []
    assert linked > 40


def test_every_mistake_is_listed_and_the_test_that_catches_it_exists() -> None:
    listed = {mistake["name"] for file in files("tests/mutation/*.toml") for mistake in _mistakes(file)}
    rows = MISTAKE.findall((ROOT / "docs/reference/mutants.md").read_text())
    assert len(rows) == 200
    lost = [
        f"{quoted or plain}: {file}::{test}"
        for quoted, plain, file, test in rows
        if (quoted or plain) not in listed or f"def {test}(" not in f"{(ROOT / file).read_text()}def ("
    ]
    assert lost == []


def _mistakes(file: Path) -> list[dict[str, str]]:
    mistakes: list[dict[str, str]] = tomllib.loads(file.read_text())["mutant"]
    return mistakes


def test_every_breakage_of_the_page_exists() -> None:
    page = (ROOT / "docs/reference/breakages.md").read_text()
    titles = [quoted or plain for quoted, plain in re.findall(r"^\| (?:`` (.*?) ``|`([^`]+)`) \|", page, re.MULTILINE)]
    assert len(titles) > 80
    assert [title for title in titles if title not in BREAKAGES] == []


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    pattern = re.compile(r"\bDESIGN\b|\bthe paper\b|Messenger document")
    said = [f for f in files("pubsub/*.py", "tests/*.py", "scripts/*.py", "*.md") if f != Path(__file__)]
    assert [str(file.relative_to(ROOT)) for file in said if pattern.search(file.read_text())] == []


@pytest.mark.slow
@pytest.mark.parametrize("builder", ["dummy", pytest.param("html", marks=pytest.mark.nightly)])
def test_the_site_is_built_without_a_warning(tmp_path: Path, builder: str) -> None:
    """As scripts/docs does it; "dummy" reads all pages and resolves all references, and writes no HTML."""
    trees = tmp_path / "trees"
    options = ["--builder", builder, "--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", str(trees)]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(tmp_path / "site")],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    reference = (trees / "reference/client.doctree").read_bytes()
    assert b"pubsub.Client.process" in reference
    assert b"pubsub.AsyncClient.process" in reference
    if builder == "html":
        assert "pubsub.Client.process" in (tmp_path / "site/reference/client.html").read_text()


def test_every_page_is_in_the_site() -> None:
    named = set(re.findall(r"^(?:[a-z-]+/)?[a-z0-9_-]+$", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in files("docs/*.md")}
    assert pages - {"index"} - named == set()
