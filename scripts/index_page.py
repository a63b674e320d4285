"""What a package index shows of this project: the README, whose links to files of the repository lead nowhere there.

Where pyproject.toml names the repository (`Source` of `project.urls`) such a link becomes an absolute one. Until it
does, a link becomes its words and the name of a file that the source distribution contains, and a picture is left out.
A hook of hatchling, called when a distribution is built.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def index_page(readme: str, source: str | None) -> str:
    """The README as it can be read anywhere.

    Args:
        readme: its text.
        source: where the repository's files can be read, with the branch; None: nowhere yet.
    """

    def replace(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if source:
            return f"{image}[{words}]({source.rstrip('/')}/{target})"
        if image:  # Nowhere to be seen.
            return ""
        return f"`{target}`" if words == target else f"{words} (`{target}`)"

    return _LINK.sub(replace, readme)


class IndexPage(MetadataHookInterface):
    """Gives the distribution its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the table `project`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(text, source)}
