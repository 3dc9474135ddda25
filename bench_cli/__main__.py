"""``python -m bench_cli`` is ``bench``."""

from bench_cli import main

main()
