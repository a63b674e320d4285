"""Write docs/explanation/rules.md: every numbered rule, with the section of the explanation page that has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import digits

FOLDER = Path(__file__).parents[1] / "docs/explanation"
PAGE = FOLDER / "rules.md"
HEAD = """\
# All rules

The [glossary](../glossary.md) defines the words.

<!-- Made by `python scripts/rules_page.py` from the explanation pages. Change a rule in its page. -->

Each rule has one place, where its reason and its exceptions follow. Code and tests cite it as
`docs/explanation/put.md, P3`. A number is not used again when its rule goes.
"""
RULE = re.compile(r"^\*\*([A-Z]{1,2}\d+)\. (.+?)\*\*", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One numbered rule: its page without a folder, the title of its page and its nearest heading."""

    name: str
    sentence: str
    page: str
    title: str
    heading: str

    @property
    def letters(self) -> str:
        """The letter of its page, or two letters: all single ones are taken."""
        return self.name.rstrip(digits)


def rules_of(page: Path) -> list[Rule]:
    """Return the rules of a page, in its order."""
    text = page.read_text(encoding="utf-8")
    title = HEADING.findall(text)[0]
    found = []
    for rule in RULE.finditer(text):
        heading = HEADING.findall(text[: rule.start()])[-1]
        sentence = " ".join(rule[2].split()).rstrip(".:") + "."
        found.append(Rule(rule[1], sentence, page.name, title, heading))
    return found


def rules() -> list[Rule]:
    """Return the rules of all pages, by their names."""
    found = [rule for page in sorted(FOLDER.glob("*.md")) if page != PAGE for rule in rules_of(page)]
    return sorted(found, key=lambda rule: (rule.letters, int(rule.name.removeprefix(rule.letters))))


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page() -> str:
    """Return the page as it has to be."""
    lines, last = [HEAD], ""
    for rule in rules():
        if rule.page != last:
            lines.append(f"\n## {rule.title}\n\n| rule | sentence | section |\n|---|---|---|\n")
            last = rule.page
        lines.append(f"| {rule.name} | {rule.sentence} | [{rule.heading}]({rule.page}#{anchor(rule.heading)}) |\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
