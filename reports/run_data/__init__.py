"""One run for a program or a notebook: its records as DataFrames, its numbers and findings as objects."""
