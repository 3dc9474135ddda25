"""Servers, proxies and stops that take a known time more than they need, each in one phase of a request."""
