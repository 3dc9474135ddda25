"""Terms of a page with their explanations, which show while a term is hovered or has the focus."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

from reports.render.plain_text import printable


class Terms:
    """The known terms of a page; in each section the first occurrence of a term is marked, so that the tab stops stay few."""

    def __init__(self, explanations: Mapping[str, str]) -> None:
        self._explanations = explanations
        names = sorted(explanations, key=len, reverse=True)
        self._names = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)") if names else None
        self._marked: set[tuple[str, str]] = set()

    def explanation(self, text: str) -> str | None:
        """The explanation of the first term in ``text``; None where there is none."""
        found = None if self._names is None else self._names.search(text)
        return None if found is None else self._explanations[found[0]]

    def marked(self, text: str, section: str) -> Markup:
        """``text`` as HTML, with its first term marked, unless ``section`` has it already."""
        text = printable(text)
        found = None if self._names is None else self._names.search(text)
        if found is None or (section, found[0]) in self._marked:
            return escape(text)
        self._marked.add((section, found[0]))
        before, after = text[: found.start()], text[found.end() :]
        term = Markup('<dfn class="term" tabindex="0" title="{}">{}</dfn>').format(self._explanations[found[0]], found[0])
        return Markup("{}{}{}").format(before, term, after)
