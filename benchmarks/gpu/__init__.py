"""A sitting on a GPU: the whole pipeline on vLLM beside vLLM alone and vLLM's own server."""
