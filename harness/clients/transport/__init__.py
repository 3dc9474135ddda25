"""Bytes to a server and back, each with its time: HTTP/1.1, HTTP/2, gRPC and server-sent events."""
