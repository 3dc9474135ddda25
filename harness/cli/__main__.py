"""``python -m harness.cli`` is ``bench``."""

from harness.cli import main

main()
