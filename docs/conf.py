"""The documentation as one site: the pages of this directory, and the reference from docstrings (`scripts/docs`)."""

import sys
from importlib.metadata import version as _version
from pathlib import Path as _Path

from docutils import nodes
from docutils.parsers.rst import Directive

sys.path.insert(0, str(_Path(__file__).parents[1] / "scripts"))
from sequence_diagram import svg

project = "pirate-pubsub"
release = version = _version("pirate-pubsub")
author = copyright = "the pirate-pubsub authors"  # noqa: A001  Sphinx calls it so.

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "pirate-pubsub"
html_static_path = ["style"]
html_css_files = ["site.css"]

myst_fence_as_directive = ["mermaid"]
"""A block that GitHub draws as Mermaid is drawn by `Diagram` here, without a script from another host."""

myst_heading_anchors = 4
"""Links to headings are those that a reader of the files on their own has."""

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True


class Diagram(Directive):
    """A Mermaid sequence diagram, as SVG within the page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it. A line that cannot be drawn is a warning, and so an error of the build."""
        try:
            drawn = svg("\n".join(self.content))
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", f'<div class="diagram" tabindex="0">{drawn}</div>', format="html")]


def setup(app: object) -> None:
    """Register the directive."""
    app.add_directive("mermaid", Diagram)  # type: ignore[attr-defined]
