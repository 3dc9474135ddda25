"""What holds of the HTML of every page."""

from __future__ import annotations

import re
from collections import Counter

_SCRIPT = re.compile(r"(<script[^>]*>).*?</script>", re.DOTALL)
_ID = re.compile(r'<[a-z][^>]*\sid="([^"]*)"')
_REFERENCE = re.compile(r'\s(?:href="#|aria-(?:labelledby|describedby)="|data-copies=")([^"]*)"')


def checked(html: str) -> str:
    """``html``, where no two elements have one id, and each reference is to an element of the page."""
    markup = _SCRIPT.sub(r"\1", html)
    ids = Counter(_ID.findall(markup))
    assert [name for name, elements in ids.items() if elements > 1] == []
    assert {*_REFERENCE.findall(markup)} - ids.keys() == set()
    return html
