"""Calibration of the client: its measurement errors and limits, against a null server that stamps what it sends."""
