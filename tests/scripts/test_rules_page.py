"""The rules of the explanation pages: numbered, one letter or two a page, and listed in docs/explanation/rules.md."""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_uppercase

from rules_page import FOLDER, PAGE, page, rules, rules_of

ROOT = Path(__file__).parents[2]
PAGE_WORDS_MAX = 1_500
SENTENCE_WORDS_MAX = 30
LISTS = ("rules.md", "terms.md")


def test_the_page_is_made_from_the_present_rules() -> None:
    assert PAGE.read_text() == page(), "run `python scripts/rules_page.py`"


def test_a_rule_has_one_place_and_a_letter_has_one_page() -> None:
    found = rules()
    assert len(found) > 200
    names = [rule.name for rule in found]
    assert len(set(names)) == len(names)
    assert len({(rule.letters, rule.page) for rule in found}) == len({rule.letters for rule in found})


def test_the_rules_of_a_page_are_in_their_order() -> None:
    for file in FOLDER.glob("*.md"):
        numbers = [int(rule.name.lstrip(ascii_uppercase)) for rule in rules_of(file)]
        assert numbers == sorted(numbers), file.name


def test_a_rule_is_one_sentence() -> None:
    long = [rule for rule in rules() if len(rule.sentence.split()) > SENTENCE_WORDS_MAX]
    several = [rule for rule in rules() if re.search(r"[.!?] ", rule.sentence.replace("// ", ""))]
    assert long == []
    assert several == []


def test_an_explanation_has_at_most_1500_words() -> None:
    sizes = {file.name: len(_prose(file).split()) for file in FOLDER.glob("*.md") if file.name not in LISTS}
    assert {name: size for name, size in sizes.items() if size > PAGE_WORDS_MAX} == {}


def _prose(file: Path) -> str:
    """Return a page's words, without its code and its rules of tables."""
    text = re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\||---", " ", text)


def test_a_decision_has_its_parts_and_is_in_the_index() -> None:
    folder = ROOT / "docs/decisions"
    index = (folder / "index.md").read_text()
    pages = sorted(file for file in folder.glob("*.md") if file.name != "index.md")
    assert len(pages) >= 12
    for number, file in enumerate(pages, 1):
        text = file.read_text()
        assert text.startswith(f"# {number:04}: ")
        assert file.name.startswith(f"{number:04}-")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
        assert re.search(r"^Status: ", text, re.MULTILINE)
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text)
        assert 200 <= len(_prose(file).split()) <= 400, file.name
        assert f"[{number:04}]({file.name})" in index
