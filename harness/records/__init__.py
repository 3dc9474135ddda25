"""What happened: the record of one request, the table of a run's records, and the run's folder.

This is all that ``reports`` may know of the harness. Import from the modules: the hot loop needs ``record`` alone,
without the weight of the table's library.
"""
