"""What is watched beside the requests: the machine, the event loop, the server's metrics and statistics."""
