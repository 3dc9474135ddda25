"""One run: its coordinator, its workers, and the loops that send on absolute time."""
