"""What to send and when, as pure values: no clock, no socket, and nothing of the other packages."""
