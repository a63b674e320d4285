"""The documentation as one site: the pages of this directory, and the reference from docstrings (`scripts/docs`)."""

from importlib.metadata import version as _version

project = "pirate-pubsub"
release = version = _version("pirate-pubsub")
author = copyright = "the pirate-pubsub authors"  # noqa: A001  Sphinx calls it so.

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "pirate-pubsub"

myst_heading_anchors = 4
"""Links to headings are those that a reader of the files on their own has."""

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
