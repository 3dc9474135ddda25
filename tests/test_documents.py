"""What the documents name is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_named_as_a_proof_exists() -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", (ROOT / "docs" / "features.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for file, name in named:
        assert re.search(rf"^(async )?def {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{name}"
