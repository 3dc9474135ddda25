"""What is watched of the server and the clocks through a run. It runs in the parent, so the workers are not disturbed."""
