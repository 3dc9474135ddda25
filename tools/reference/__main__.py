"""Writes the generated sections of the documentation: ``python -m tools.reference``.

A section is what lies between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->`` on any page below docs/; NAME is a key
of SECTIONS. With ``--check`` nothing is written, and the exit status is 1 where a page differs from the code.
"""

from __future__ import annotations

import sys

from tools.reference.sections import outdated_pages

if __name__ == "__main__":
    pages = outdated_pages()
    if "--check" not in sys.argv:
        for page, text in pages.items():
            page.write_text(text, encoding="utf-8")
    print("\n".join(map(str, pages)))
    sys.exit(1 if pages and "--check" in sys.argv else 0)
