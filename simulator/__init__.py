"""A server of a language model as constants and laws: fitted to the records of measured runs, simulated, and compared with
others.
"""
