"""What a worker writes while it sends: frames that a crash cannot make unreadable, and the identity of their run."""
