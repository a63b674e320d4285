"""What the documents and docstrings point to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CITED = re.compile(r"(docs/[a-z_/-]+\.md)((?:(?:,|\s+and)\s+\*[^*]+\*)+)")
TEST = re.compile(r"`(\w+/test_\w+\.py)`: ([^|\[]+)")
SECTION = re.compile(r"\*([^*]+)\*")


def files(*patterns: str) -> list[Path]:
    said = subprocess.run(["git", "ls-files", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / line for line in said.stdout.splitlines()]


def headings(page: Path) -> set[str]:
    return {line.lstrip("#").strip() for line in page.read_text().splitlines() if re.match(r"#+ ", line)}


def anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)}


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


def test_every_section_that_is_cited_exists() -> None:
    cited = lost = 0
    problems = []
    for file in files("pubsub/*.py", "tests/*.py", "scripts/*", "*.md"):
        if file.suffix == ".png" or file == Path(__file__):
            continue
        # A citation may go on in the next line of a docstring or of a comment.
        text = re.sub(r"\s*\n\s*(?:# )?", " ", file.read_text())
        for page, sections in CITED.findall(text):
            for section in SECTION.findall(sections):
                cited += 1
                if not (ROOT / page).is_file() or section not in headings(ROOT / page):
                    lost += 1
                    problems.append(f"{file.relative_to(ROOT)}: {page}, *{section}*")
    assert problems == []
    assert cited > 40


def test_every_test_that_catches_a_mistake_is_where_the_page_says() -> None:
    named = TEST.findall((ROOT / "docs/reliability.md").read_text())
    assert len(named) > 60
    lost = [
        f"{file}: {title}"
        for file, title in named
        if f"def test_{title.strip().replace(' ', '_')}(" not in (ROOT / "tests" / file).read_text()
    ]
    assert lost == []


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    pattern = re.compile(r"\bDESIGN\b|\bthe paper\b|Messenger document")
    said = [f for f in files("pubsub/*.py", "tests/*.py", "scripts/*.py", "*.md") if f != Path(__file__)]
    assert [str(file.relative_to(ROOT)) for file in said if pattern.search(file.read_text())] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    # As scripts/docs does it.
    options = [
        "--builder",
        "html",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "--doctree-dir",
        str(tmp_path / "trees"),
    ]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "docs", str(tmp_path / "site")],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    reference = (tmp_path / "site/reference/client.html").read_text()
    assert "pubsub.Client.process" in reference
    assert "pubsub.AsyncClient.process" in reference


def test_every_page_is_in_the_site() -> None:
    named = set(re.findall(r"^[a-z_/-]+$", (ROOT / "docs/index.md").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in files("docs/*.md")}
    assert pages - {"index"} - named == set()
