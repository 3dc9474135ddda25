"""Launching: pure functions that make commands and scripts from frozen options, and runners that start them.

``options.py`` has the options; ``tritonserver.py``, ``mpirun.py``, ``docker.py`` and ``slurm.py`` make the command of one
launcher each; ``plan.py`` combines them into a ``LaunchPlan``; ``run.py`` runs a plan; ``background.py`` keeps a server running
without a terminal.
"""
