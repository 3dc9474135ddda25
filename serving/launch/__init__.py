"""Launching: pure functions that make commands and scripts out of frozen options, and thin runners that start them.

``options.py`` says what can be asked; ``tritonserver.py``, ``mpirun.py``, ``docker.py`` and ``slurm.py`` make the command of
each way; ``planning.py`` joins them to a ``LaunchPlan``; ``running.py`` runs a plan; ``background.py`` keeps one without a
terminal.
"""
