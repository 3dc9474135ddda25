"""Sphinx's configuration of the documentation; ``make docs`` builds it."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "inflight-bench"
author = "the authors of inflight-bench"
smartquotes = False  # it would join the two dashes of an option
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "schemas"]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": True}
toc_object_entries = False
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "inflight-bench"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["tables.css"]

# A page includes generated Markdown by a fence of one line, "```{generated} module:function", which calls the function.
_GENERATED = re.compile(r"^```\{generated\} ([\w.]+):(\w+)\n```$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    app.connect("source-read", _insert_generated)


def _insert_generated(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace each ``generated`` fence of a page by what its function returns."""
    source[0] = _GENERATED.sub(lambda fence: getattr(importlib.import_module(fence[1]), fence[2])(), source[0])
