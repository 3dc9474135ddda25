"""Repositories for servers that are not the embedded one: one file a target."""
