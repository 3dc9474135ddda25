"""Clients of Triton Inference Server over gRPC and HTTP, and the inspection of its models."""
