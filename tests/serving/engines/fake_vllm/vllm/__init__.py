"""The part of vLLM that the engine's host uses, scripted: a step of 1 ms adds one token to each request."""
