"""What is asked of a server and what its answers mean, one client a protocol."""
