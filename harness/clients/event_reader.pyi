"""What ``event_reader.pyx`` offers to Python. It is compiled when the project is installed, where there is a C compiler."""

class EventReader:
    """Reads streams of server-sent events on a thread of its own, until ``close``. To be used from one thread of Python's.

    Raises OSError or MemoryError.
    """

    def fileno(self) -> int:
        """A descriptor that can be read when a stream has been given back, until ``given_back`` is called; -1 when closed."""

    def follow(self, descriptor: int, emptied_ns: int) -> None:
        """Read the socket ``descriptor`` while whole events come, each in one HTTP chunk; then give it back.

        It must stay open until it is released. What comes is known to have arrived after ``emptied_ns`` (of ``now_ns``).
        Raises OSError or MemoryError.
        """

    def given_back(self) -> list[int]:
        """The descriptors of the streams that came to something else since the last call: each is to be released."""

    def release(self, descriptor: int) -> tuple[list[int], list[bytes], bytes, int, bool, int, int, int]:
        """Read ``descriptor`` no more; returns what was read since ``follow``: the fields of ``event_streams.Followed``."""

    def close(self) -> None:
        """End the thread: it has ended when this returns."""
