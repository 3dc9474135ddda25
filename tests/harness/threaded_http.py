"""A server of HTTP in a thread, for handlers that a test writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def threaded_http(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Serve on loopback with ``handler``; yields the port. Each write is sent at once: the client's kernel acknowledges the one
    before it up to 40 ms later.
    """
    at_once = type("_AtOnce", (handler,), {"disable_nagle_algorithm": True})
    server = ThreadingHTTPServer(("127.0.0.1", 0), at_once)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
