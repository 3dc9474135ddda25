"""Users for Locust that stream from a language model: what ``harness/locustfile.py`` consists of.

Requests are encoded, and responses decoded and attributed to tokens, by the code that ``bench`` uses, so the metrics have its
definitions. The load is Locust's: a closed loop.
"""
