"""A run on several hosts: workers joined over Locust, their clocks, and the copies of their journals."""
