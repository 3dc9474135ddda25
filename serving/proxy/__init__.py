"""The proxy between Triton, which listens on loopback, and every other machine: the only listener on ``--host``.

Any client can crash Triton 24.10: with a body of a million one-byte chunks (CVE-2025-23310, CVE-2025-23311), or with a deeply
nested JSON text. So each request is read here whole, within bounds, and sent on with its length; answers pass as they come.

``settings.py`` has the addresses and bounds; ``request_guard.py`` and ``json_depth.py`` say what is refused; ``http_proxy.py``
and ``grpc_proxy.py`` forward; ``__main__.py`` is the process.
"""
