"""Sending and recording: what a run does, from its workers to its records."""
