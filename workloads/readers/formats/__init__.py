"""One module a format: its ``NAME``, its ``SHAPE`` in words, ``recognises`` and ``read``, as ``detect.JsonReader`` has them.

No format imports another. ``detect`` lists them.
"""
