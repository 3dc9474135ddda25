"""Writes the generated sections of the documentation: ``python -m tools.reference``.

The schema of run.json is generated whole. A section is between ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->`` on any
page below docs/; NAME is a key of SECTIONS. With ``--check`` nothing is written, and the exit status is 1 where a file differs
from the code.
"""

from __future__ import annotations

import sys

from tools.reference.run_schema import RUN_SCHEMA, run_schema_text
from tools.reference.sections import outdated_pages

if __name__ == "__main__":
    pages = outdated_pages()
    if RUN_SCHEMA.read_text(encoding="utf-8") != run_schema_text():
        pages[RUN_SCHEMA] = run_schema_text()
    if "--check" not in sys.argv:
        for page, text in pages.items():
            page.write_text(text, encoding="utf-8")
    print("\n".join(map(str, pages)))
    sys.exit(1 if pages and "--check" in sys.argv else 0)
