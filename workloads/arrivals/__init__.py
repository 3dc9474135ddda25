"""When requests arrive: processes, laws of gaps, rate profiles, client profiles and recorded times."""
