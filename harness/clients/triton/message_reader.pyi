"""The Python interface of ``message_reader.pyx``, which is compiled when the project is installed and there is a compiler."""

def parts_of(body: bytes, streamed: bool) -> tuple[str, bytes, list[bytes], list[bytes]] | None:
    """The parts of a ModelInferResponse, within a ModelStreamInferResponse where ``streamed``: its id, its outputs as the bytes
    of a ModelInferResponse that has nothing else, their contents, and its parameters.

    None where it has any field besides, or has them otherwise than Triton sends them, or is malformed.
    """
