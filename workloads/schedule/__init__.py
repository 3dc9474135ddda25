"""Which request is sent when: open, closed and session schedules, load modes, classes, probes and cancellations."""
