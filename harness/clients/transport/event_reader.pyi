"""The Python interface of ``event_reader.pyx``, which is compiled when the project is installed, where there is a compiler."""

class EventReader:
    """Reads streams of server-sent events, and of gRPC's messages, on a thread of its own, until ``close``. Not thread-safe.

    Raises OSError or MemoryError.
    """

    def fileno(self) -> int:
        """A descriptor that is readable when a stream is given back, until ``given_back`` is called; -1 when closed."""

    def follow(self, descriptor: int, emptied_ns: int) -> None:
        """Read the socket ``descriptor`` while it receives whole events, each in one HTTP chunk; then give it back.

        It must stay open until it is released. Unread bytes arrived after ``emptied_ns`` (of ``now_ns``).
        Raises OSError or MemoryError.
        """

    def follow_messages(self, descriptor: int, emptied_ns: int, next_id: int) -> None:
        """As ``follow``, while it receives DATA frames of HTTP/2 without flags that contain whole uncompressed gRPC messages,
        on streams that a client has opened, below ``next_id``, and frames of whole headers.

        It is given back when an answer ends, or with other bytes, and read further until its release.
        """

    def open_streams(self, descriptor: int, next_id: int) -> None:
        """Allow messages on streams below ``next_id``. Raises ValueError where it was never followed."""

    def given_back(self) -> list[int]:
        """The descriptors given back since the last call: each must be released."""

    def release(self, descriptor: int) -> tuple[list[int], list[bytes], bytes, int, bool, int, int, int]:
        """Stop reading ``descriptor``; returns the bytes read since ``follow``: the fields of ``event_streams.Followed``.

        Raises ValueError where it was never followed.
        """

    def release_messages(
        self, descriptor: int
    ) -> tuple[list[tuple[dict[int, tuple[list[int], list[bytes]]], int, bytes]], bool, int, int, int]:
        """As ``release``, after ``follow_messages``: the fields of ``event_streams.FollowedMessages``."""

    def close(self) -> None:
        """End the thread, and wait for its end."""
