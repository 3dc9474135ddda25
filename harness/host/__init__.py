"""This machine and this process: clocks, cores, priorities and signals."""
