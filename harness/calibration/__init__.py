"""What this client adds to what it measures: a null server that stamps what it sends, and the client measured against it."""
