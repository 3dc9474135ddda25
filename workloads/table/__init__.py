"""The workload table: its rows, statistics, repeated prefixes, scaling and writers."""
