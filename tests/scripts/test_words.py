"""Pages and docstrings stay plain: few relative words, short sentences, defined terms, no private words.

`docs/glossary.md` is the list of terms.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

NOT_PROSE = {"docs/reference/breakages.md", "docs/reference/mutants.md"}
"""Tables of recorded runs: names of breakages and of tests, and messages that a run printed."""

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    if path.relative_to(ROOT).as_posix() not in NOT_PROSE
)

WITHOUT_TERMS = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "docs/glossary.md", "docs/index.md"] + [
    f"docs/reference/{page}.md" for page in ("client", "errors", "http", "messenger", "services")
]
"""Pages that need no link to the glossary first: the first screen, pages for developers, and lists of classes."""

RELATIVE = re.compile(r"\b(?:who|whom|whose|whoever|what|whatever)\b", re.IGNORECASE)
RELATIVE_PER_THOUSAND_MAX = 2.0
LONG_WORDS = 30
LONG_SHARE_MAX = 0.05

PRIVATE = re.compile(
    r"\b(?:unheard|doors?|doorkeeper|knocks?|lull|spine|absorbed|struck|torn|midway|mend(?:s|ed|ing)?|singles|"
    r"acceptor_recovery|bury|buried|landed|stand[-_]in|roster|conversing|turned away|let in|lets in)\b",
    re.IGNORECASE,
)
"""Words that stand for something in this project alone, each with a word of the field in its place."""

FIELD = [
    "topic", "message", "record", "batch", "log", "offset", "publisher", "counter", "subscriber", "subscription",
    "backlog", "position", "proxy", "server", "client", "owner", "heartbeat", "liveness", "announcement", "transfer",
    "merge", "watermark", "epoch", "term", "timestamp",
]  # fmt: skip
"""Words of the field that the glossary defines at least."""


def blocks(text: str) -> list[str]:
    """The prose of a page: paragraphs, items of lists and cells of tables, without code and the targets of links."""
    text = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]+\)", r"\1", text)
    text = re.sub(r"`[^`\n]+`", "CODE", text)
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        found.append("")
        for line in paragraph.splitlines():
            if line.startswith("|"):
                found += [cell.strip() for cell in line.strip("|").split("|") if re.search(r"\w", cell)]
            elif re.match(r"\s*(?:[-*]|\d+\.|#+)\s", line):
                found.append(re.sub(r"^\s*(?:[-*]|\d+\.|#+)\s+", "", line))
            else:
                found[-1] = f"{found[-1]} {line.strip()}".strip()
    return [block for block in found if block]


def sentences(text: str) -> list[str]:
    ends = re.compile(r"(?<=[.!?])(?:\*\*)?\s+(?=[\"'(*_A-Z0-9])")  # A sentence in bold may end there.
    return [sentence for block in blocks(text) for sentence in ends.split(block)]


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9][\w'/.-]*", text)


def relative_per_thousand(text: str) -> float:
    prose = "\n".join(blocks(text))
    return 1000 * len(RELATIVE.findall(prose)) / max(len(words(prose)), 1)


def long_sentences(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(words(sentence)) > LONG_WORDS]


def terms() -> dict[str, str]:
    """Each term of the glossary, with its definition."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    return dict(rows[1:])


def before_the_glossary(text: str) -> list[str]:
    """Terms in a page's prose in front of its first link to the glossary; headings do not count."""
    front, link, _ = text.partition("glossary.md")
    assert link, "the page links the glossary"
    prose = "\n".join(blocks(re.sub(r"^#.*$", "", front[: front.rfind("[")], flags=re.MULTILINE)))
    return [term for term in terms() if re.search(rf"\b{term}s?\b", prose, re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_few_relative_words(page: str) -> None:
    text = (ROOT / page).read_text()
    found = [block for block in blocks(text) if RELATIVE.search(block)]
    assert relative_per_thousand(text) < RELATIVE_PER_THOUSAND_MAX, found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_few_long_sentences(page: str) -> None:
    text = (ROOT / page).read_text()
    found = long_sentences(text)
    assert len(found) < LONG_SHARE_MAX * len(sentences(text)), found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_private_words(page: str) -> None:
    assert PRIVATE.findall("\n".join(blocks((ROOT / page).read_text()))) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WITHOUT_TERMS])
def test_a_page_links_the_glossary_before_it_uses_a_term(page: str) -> None:
    assert before_the_glossary((ROOT / page).read_text()) == []


def test_the_glossary_defines_the_words_of_the_field_in_order_and_in_one_sentence_each() -> None:
    found = terms()
    assert set(FIELD) - set(found) == set()
    assert list(found) == sorted(found)
    assert {term: text for term, text in found.items() if len(sentences(text)) != 1 or len(words(text)) > 25} == {}


ROOMS = sorted(path.name for path in (ROOT / "pubsub").iterdir() if path.suffix in {"", ".py"})


def comments(path: Path) -> list[str]:
    """Each docstring of a file, each text behind a value in its place, and each comment."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found.append(text)
    return found + re.findall(r"(?m)(?:^|\s)#\s.*$", path.read_text())


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_comments_of_a_folder_have_few_relative_words(room: str) -> None:
    place = ROOT / "pubsub" / room
    texts = [text for path in ([place] if place.is_file() else sorted(place.rglob("*.py"))) for text in comments(path)]
    count = sum(len(words(text)) for text in texts)
    found = [text for text in texts if RELATIVE.search(text)]
    assert len(RELATIVE.findall("\n".join(texts))) < RELATIVE_PER_THOUSAND_MAX * max(count, 500) / 1000, found


def test_code_and_links_do_not_count_and_cells_and_items_are_sentences() -> None:
    page = (
        "# Who\n\n```\nwhat who\n```\n\nOne [what](who.md) `whose`. Two\nlines.\n\n"
        "| a | whoever |\n|---|---|\n* first\n* second one\n"
    )
    assert sentences(page) == ["Who", "One what CODE.", "Two lines.", "a", "whoever", "first", "second one"]
    assert relative_per_thousand(page) == pytest.approx(1000 * 3 / 11)
    assert long_sentences("word " * 30 + ".") == []
    assert len(long_sentences("word " * 31 + ".")) == 1


def test_a_term_in_front_of_the_link_is_found() -> None:
    assert before_the_glossary("# A proxy\n\nTopics are here: [glossary](glossary.md). A server.\n") == ["topic"]
