"""Data of a run: the record of one request, the tables, and the run's folder.

This is all of the harness that ``reports`` may import. Import from the modules: the hot loop needs ``record`` alone, without
loading Arrow.
"""
