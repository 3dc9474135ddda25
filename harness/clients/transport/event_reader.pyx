# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads streams of server-sent events, and of gRPC's messages, on a thread of its own, outside the interpreter.

While an answer streams, nearly every received piece is one event in one HTTP chunk, or over gRPC whole messages in one DATA
frame. Reading such a piece in Python costs more than the kernel's part. Here it is a system call and a copy, which waits for no
event loop, no interpreter lock and no garbage collector. Everything else is left to Python: the thread gives a stream back with
the first bytes that are not such a piece, with its end, and with its errors. Whole headers of HTTP/2 are kept among the messages:
Python needs them when an answer ends with them, and the messages after them are read here nevertheless. ``http1.py`` and ``http2.py`` read the same pieces
in Python, and define what they mean.

A connection of gRPC has many streams, whose messages must not wait, and be joined by the kernel, until Python's loop has time.
So the thread continues to read it, without looking at the bytes, until Python takes it back.

Arrival times are determined as in ``tcp.py``, which describes it. The kernel returns them however late it is called, but for
pieces of one stream that wait together only the last one's. So at a high rate, events that one stream sent within ``GATHER_NS``
of each other, or longer where this thread waited for a core, may all have the time of the last of them. So may bytes between a
piece that is not an event and the loop's read of that. A connection that carries messages has many streams, so nothing waits
to be gathered while one is followed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, nanosleep, timespec
from posix.unistd cimport close as close_descriptor, read as read_descriptor, write as write_descriptor

import os


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, const void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)
    int pthread_create(pthread_t *, const void *, void *(*)(void *) noexcept nogil, void *)
    int pthread_join(pthread_t, void **)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *)
    int pthread_sigmask(int, const sigset_t *, sigset_t *)
    enum:
        SIG_SETMASK

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
    struct cmsghdr:
        int cmsg_level
        int cmsg_type
    cmsghdr *CMSG_FIRSTHDR(msghdr *)
    unsigned char *CMSG_DATA(cmsghdr *)
    ssize_t recv(int, void *, size_t, int)
    ssize_t recvmsg(int, msghdr *, int)
    enum:
        MSG_DONTWAIT
        MSG_PEEK
        SOL_SOCKET

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int)
    enum:
        EPOLLIN
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int, int)
    enum:
        EFD_CLOEXEC
        EFD_NONBLOCK

cdef enum:
    READ_BYTES = 65536
    READY_AT_ONCE = 64
    MOST_EVENTS = 256  # passed on at once: handling them must not block Python's loop for long
    MOST_BYTES = 1048576  # then Python takes them before more is read: a flood must not fill the memory
    KEPT_BYTES = 20  # of a message or event beside its own bytes: its time, its end and its stream
    MOST_PIECES = 16  # with more, everything is read at once, to catch up
    SO_TIMESTAMPNS = 35  # and the number of its control message
    FRAME_HEADER_BYTES = 9  # of HTTP/2 (RFC 9113, section 4.1)
    MOST_FRAME_BYTES = 16384  # its default, which the client's settings keep
    HEADERS = 1  # a type of frame,
    END_STREAM = 1  # and flags of it
    END_HEADERS = 4
    PREFIX_BYTES = 5  # of a gRPC message: whether it is compressed, its length

cdef int64_t LATE_NS = 1_000_000  # bytes may be unread for so long before each piece is read by itself
cdef int64_t GATHER_NS = 500_000  # between two reads at a high rate: waking for each piece would cost half as much again
cdef int64_t PAUSE_NS = 20_000  # between two readings of clocks: a longer one means that the thread was preempted


cdef struct Stream:
    bint followed
    bint has_messages  # of gRPC, in HTTP/2's frames; else events
    uint32_t next_id  # of a stream of HTTP/2 that is not open yet
    bint answer_ended  # headers that end an answer are among the messages, with the id 0, as all headers are
    bint unlike  # it had other bytes than these: those from there on are kept as they come, with the id 0, too
    bint queued  # whether Python is notified, or will be, of bytes to release
    bint over  # it has ended or failed
    int error  # the errno of the failure, or 0
    int64_t emptied_ns  # unread bytes arrived later: the last read that left none behind
    int64_t rest_ns  # the arrival of the bytes after the last event; those after messages have times of their own
    long unstamped
    char *data  # of the events, concatenated, and then the rest
    size_t length
    size_t room
    int64_t *times_ns  # of each event or message
    size_t *ends  # of each of them in ``data``
    uint32_t *ids  # of the stream of each message
    size_t events
    size_t events_room


cdef struct Shared:  # ``lock`` guards the fields below it; ``streams`` is indexed by descriptor
    pthread_mutex_t lock
    Stream *streams
    int *given_back
    int streams_room
    int given_back_count
    int epoll
    int bell  # an eventfd that wakes Python's loop
    int stop
    int with_messages  # connections followed
    char *buffer  # the thread's own


cdef int64_t _now(int clock) noexcept nogil:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef void _clocks(int64_t *now_ns, int64_t *ahead_ns) noexcept nogil:
    """The time, and the wall clock's offset to it; a pause between the readings makes arrivals late, never early."""
    cdef int64_t before_ns, wall_ns, after_ns
    cdef int number
    for number in range(3):
        before_ns = _now(CLOCK_MONOTONIC)
        wall_ns = _now(CLOCK_REALTIME)
        after_ns = _now(CLOCK_MONOTONIC)
        if after_ns - before_ns < PAUSE_NS:
            break
    now_ns[0] = after_ns
    ahead_ns[0] = wall_ns - after_ns


cdef ssize_t _receive(int descriptor, char *buffer, size_t most, int flags, int64_t *stamp_ns) noexcept nogil:
    """As recvmsg(2); sets ``stamp_ns`` to the kernel's arrival time, on the wall clock, or 0 where there is none."""
    cdef char control[128]
    cdef iovec part
    cdef msghdr message
    cdef cmsghdr *head
    cdef timespec stamp
    part.iov_base = buffer
    part.iov_len = most
    memset(&message, 0, sizeof(message))
    message.msg_iov = &part
    message.msg_iovlen = 1
    message.msg_control = control
    message.msg_controllen = sizeof(control)
    cdef ssize_t count = recvmsg(descriptor, &message, MSG_DONTWAIT | flags)
    stamp_ns[0] = 0
    if count > 0:
        head = CMSG_FIRSTHDR(&message)
        if head != NULL and head.cmsg_level == SOL_SOCKET and head.cmsg_type == SO_TIMESTAMPNS:
            memcpy(&stamp, CMSG_DATA(head), sizeof(stamp))
            stamp_ns[0] = <int64_t>stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec
    return count


cdef int _hex(char digit) noexcept nogil:
    if c'0' <= digit <= c'9':
        return digit - c'0'
    if c'a' <= digit <= c'f':
        return digit - c'a' + 10
    if c'A' <= digit <= c'F':
        return digit - c'A' + 10
    return -1


cdef size_t _event_chunk(const char *piece, size_t length) noexcept nogil:
    """The length of the chunk at the start of ``piece``, if it is whole and contains exactly one event of one line; else 0.

    The chunk (RFC 9112, section 7.1) must have less than 4,096 bytes, and no extensions. The event (WHATWG HTML, section
    9.2.6) must be one line of data after the usual space, all lines ended by LF. Its data is no array: ``[DONE]``, which ends
    an answer, must be known at once.
    """
    cdef size_t size = 0, at = 0, count
    while at < length and at < 3 and _hex(piece[at]) >= 0:
        size = size * 16 + _hex(piece[at])
        at += 1
    if at == 0 or size < 9 or length < at + size + 4 or piece[at] != c'\r' or piece[at + 1] != c'\n':
        return 0
    at += 2
    if memcmp(piece + at, b"data: ", 6) or memcmp(piece + at + size - 2, b"\n\n\r\n", 4):
        return 0
    if piece[at + 6] == c'[':
        return 0
    count = size - 8
    if memchr(piece + at + 6, c'\n', count) != NULL or memchr(piece + at + 6, c'\r', count) != NULL:
        return 0
    return at + size + 2


cdef uint32_t _uint32(const char *place) noexcept nogil:
    """Four bytes in network order."""
    cdef const unsigned char *bytes = <const unsigned char *>place
    return <uint32_t>bytes[0] << 24 | <uint32_t>bytes[1] << 16 | <uint32_t>bytes[2] << 8 | bytes[3]


cdef size_t _message_frame(const char *piece, size_t length, uint32_t next_id) noexcept nogil:
    """The length of the frame at the start of ``piece``, if it is whole and contains only whole gRPC messages; else 0.

    It must be DATA without flags on a stream that a client may have opened, below ``next_id``. Messages must be uncompressed.
    """
    cdef size_t stop, at = FRAME_HEADER_BYTES, size
    cdef uint32_t stream_id
    if length < FRAME_HEADER_BYTES or piece[3] != 0 or piece[4] != 0:
        return 0
    stop = FRAME_HEADER_BYTES + (_uint32(piece) >> 8)
    stream_id = _uint32(piece + 5)
    if stop > FRAME_HEADER_BYTES + MOST_FRAME_BYTES or stop > length or stream_id % 2 == 0 or stream_id >= next_id:
        return 0
    while at < stop:
        if stop - at < PREFIX_BYTES or piece[at] != 0:
            return 0
        size = _uint32(piece + at + 1)
        at += PREFIX_BYTES
        if size > stop - at:
            return 0
        at += size
    return stop if stop > FRAME_HEADER_BYTES else 0


cdef size_t _headers_frame(const char *piece, size_t length) noexcept nogil:
    """The length of the frame at the start of ``piece``, if it is whole and contains whole headers; else 0."""
    cdef size_t size
    if length < FRAME_HEADER_BYTES or piece[3] != HEADERS or not piece[4] & END_HEADERS:
        return 0
    size = FRAME_HEADER_BYTES + (_uint32(piece) >> 8)
    return size if size <= FRAME_HEADER_BYTES + MOST_FRAME_BYTES and size <= length else 0


cdef size_t _piece(const Stream *stream, const char *piece, size_t length) noexcept nogil:
    """The length of the event or frame at the start of ``piece`` that is read here; else 0."""
    if not stream.has_messages:
        return _event_chunk(piece, length)
    return _message_frame(piece, length, stream.next_id) or _headers_frame(piece, length)


cdef bint _has_room(Stream *stream, size_t more_bytes) noexcept nogil:
    """Allocate room for one more event or message and ``more_bytes``. False where there is no memory."""
    cdef size_t room
    cdef void *grown
    if stream.length + more_bytes > stream.room:
        room = max(2 * stream.room, stream.length + more_bytes, <size_t>4096)
        grown = realloc(stream.data, room)
        if grown == NULL:
            return False
        stream.data = <char *>grown
        stream.room = room
    if stream.events == stream.events_room:
        room = max(2 * stream.events_room, <size_t>32)
        grown = realloc(stream.times_ns, room * sizeof(int64_t))
        if grown == NULL:
            return False
        stream.times_ns = <int64_t *>grown
        grown = realloc(stream.ends, room * sizeof(size_t))
        if grown == NULL:
            return False
        stream.ends = <size_t *>grown
        if stream.has_messages:
            grown = realloc(stream.ids, room * sizeof(uint32_t))
            if grown == NULL:
                return False
            stream.ids = <uint32_t *>grown
        stream.events_room = room
    return True


cdef bint _keep(Stream *stream, const char *data, size_t length, int64_t arrived_ns, uint32_t stream_id) noexcept nogil:
    """Keep an event or a message. False where there is no memory."""
    if not _has_room(stream, length):
        return False
    memcpy(stream.data + stream.length, data, length)
    stream.length += length
    stream.times_ns[stream.events] = arrived_ns
    stream.ends[stream.events] = stream.length
    if stream.has_messages:
        stream.ids[stream.events] = stream_id
    stream.events += 1
    return True


cdef bint _keep_event(Stream *stream, const char *chunk, size_t length, int64_t arrived_ns) noexcept nogil:
    """Keep the event of a chunk that ``_event_chunk`` found. False where there is no memory."""
    cdef const char *event = <const char *>memchr(chunk, c'\n', length) + 7  # after the chunk's size and ``data: ``
    return _keep(stream, event, chunk + length - event - 4, arrived_ns, 0)


cdef bint _keep_messages(Stream *stream, const char *frame, size_t length, int64_t arrived_ns) noexcept nogil:
    """Keep all messages of a frame that ``_message_frame`` found, or none. False where there is no memory."""
    cdef size_t at = FRAME_HEADER_BYTES, size, length_before = stream.length, events_before = stream.events
    cdef uint32_t stream_id = _uint32(frame + 5)
    while at < length:
        size = _uint32(frame + at + 1)
        at += PREFIX_BYTES
        if not _keep(stream, frame + at, size, arrived_ns, stream_id):
            stream.length = length_before
            stream.events = events_before
            return False
        at += size
    return True


cdef int64_t _arrived(Stream *stream, int64_t stamp_ns, int64_t woke_ns, int64_t ahead_ns) noexcept nogil:
    """The arrival time of the bytes just read: the kernel's, unless it is out of range because the wall clock was set."""
    cdef int64_t arrived_ns = stamp_ns - ahead_ns
    if stamp_ns and stream.emptied_ns <= arrived_ns <= woke_ns:
        return arrived_ns
    cdef int64_t read_ns = _now(CLOCK_MONOTONIC)
    if not stamp_ns or arrived_ns > read_ns:
        stream.unstamped += 1
        return read_ns
    return max(stream.emptied_ns, arrived_ns)


cdef bint _read(Stream *stream, int descriptor, char *buffer, size_t most, int64_t woke_ns, int64_t ahead_ns) noexcept nogil:
    """Read once; False where Python must continue with the stream."""
    cdef int64_t stamp_ns, arrived_ns
    cdef size_t at = 0, length
    cdef ssize_t count = _receive(descriptor, buffer, most, 0, &stamp_ns)
    if count < 0 and (errno == EAGAIN or errno == EINTR):
        return True
    if count <= 0:
        stream.over = True
        stream.error = errno if count < 0 else 0
        return False
    arrived_ns = _arrived(stream, stamp_ns, woke_ns, ahead_ns)
    stream.emptied_ns = max(stream.emptied_ns, arrived_ns)  # later bytes are no earlier, by whatever reading of the clocks
    if <size_t>count < most:
        stream.emptied_ns = max(stream.emptied_ns, woke_ns)
    if not _has_room(stream, count):
        stream.over = True
        stream.error = ENOMEM
        return False
    if stream.has_messages:
        return _take_messages(stream, buffer, count, arrived_ns)
    while at < <size_t>count:
        length = _event_chunk(buffer + at, count - at)
        if length == 0 or not _keep_event(stream, buffer + at, length, arrived_ns):
            break
        at += length
    memcpy(stream.data + stream.length, buffer + at, count - at)
    stream.length += count - at
    stream.rest_ns = arrived_ns
    return at == <size_t>count


cdef bint _take_messages(Stream *stream, const char *read, size_t count, int64_t arrived_ns) noexcept nogil:
    """Keep the messages and headers that were read, and then other bytes as they are. False where there is no memory."""
    cdef size_t at = 0, length
    cdef bint kept
    while at < count and not stream.unlike:
        length = _message_frame(read + at, count - at, stream.next_id)
        if length:
            kept = _keep_messages(stream, read + at, length, arrived_ns)
        else:
            length = _headers_frame(read + at, count - at)
            kept = length != 0 and _keep(stream, read + at, length, arrived_ns, 0)
            stream.answer_ended = stream.answer_ended or (length != 0 and (read[at + 4] & END_STREAM) != 0)
        if kept:
            at += length
        else:
            stream.unlike = True
    if at < count and not _keep(stream, read + at, count - at, arrived_ns, 0):
        stream.over = True
        stream.error = ENOMEM
        return False
    return True


cdef bint _read_pieces(Stream *stream, int descriptor, char *buffer, int64_t woke_ns, int64_t ahead_ns) noexcept nogil:
    """Read piece by piece, so that each has a time of its own; where there are too many, the last ones at once."""
    cdef size_t length, at = 0
    cdef ssize_t count = recv(descriptor, buffer, READ_BYTES, MSG_PEEK | MSG_DONTWAIT)
    cdef size_t lengths[MOST_PIECES]
    cdef int pieces = 0, number
    if count < 0 and errno != EAGAIN and errno != EINTR:  # MSG_PEEK clears the socket's error
        stream.over = True
        stream.error = errno
        return False
    while count > 0 and at < <size_t>count and pieces < MOST_PIECES and not stream.unlike:
        length = _piece(stream, buffer + at, count - at)
        if length == 0:
            break
        lengths[pieces] = length
        pieces += 1
        at += length
    for number in range(pieces):
        if not _read(stream, descriptor, buffer, lengths[number], woke_ns, ahead_ns):
            return False
    return (count > 0 and at == <size_t>count) or _read(stream, descriptor, buffer, READ_BYTES, woke_ns, ahead_ns)


cdef bint _is_late(Shared *shared, epoll_event *ready, int count, char *buffer, int64_t woke_ns, int64_t ahead_ns) noexcept nogil:
    """Whether bytes have been unread for long: by the first readable socket, which usually has waited longest."""
    cdef int64_t stamp_ns = 0
    cdef int number, descriptor
    cdef Stream *stream
    cdef ssize_t got = 0
    for number in range(count):
        descriptor = ready[number].data.fd
        if descriptor == shared.stop:
            continue
        pthread_mutex_lock(&shared.lock)
        stream = &shared.streams[descriptor]
        if stream.followed:
            got = _receive(descriptor, buffer, 1, MSG_PEEK, &stamp_ns)
            if got < 0 and errno != EAGAIN and errno != EINTR:
                stream.over = True
                stream.error = errno
        pthread_mutex_unlock(&shared.lock)
        if got > 0 and stamp_ns:
            return woke_ns - (stamp_ns - ahead_ns) > LATE_NS
    return False


cdef bint _queue_for_release(Shared *shared, Stream *stream, int descriptor) noexcept nogil:
    """Queue a stream for release by Python; True where it was not queued before."""
    if stream.queued:
        return False
    stream.queued = True
    shared.given_back[shared.given_back_count] = descriptor
    shared.given_back_count += 1
    return True


cdef void *_read_all(void *argument) noexcept nogil:
    """The thread: reads until ``stop`` is signalled."""
    cdef Shared *shared = <Shared *>argument
    cdef epoll_event ready[READY_AT_ONCE]
    cdef char *buffer = shared.buffer
    cdef int64_t woke_ns = 0, ahead_ns = 0, woke_before_ns = 0
    cdef uint64_t one = 1
    cdef int count, number, descriptor
    cdef bint late, goes_on, rings, much_comes = False
    cdef timespec gather
    gather.tv_sec = 0
    gather.tv_nsec = GATHER_NS
    cdef Stream *stream
    while True:
        if much_comes:
            nanosleep(&gather, NULL)
        count = epoll_wait(shared.epoll, ready, READY_AT_ONCE, -1)
        _clocks(&woke_ns, &ahead_ns)
        late = count > 0 and woke_ns - woke_before_ns > LATE_NS and _is_late(shared, ready, count, buffer, woke_ns, ahead_ns)
        much_comes = woke_ns - woke_before_ns < 2 * GATHER_NS and not shared.with_messages
        woke_before_ns = woke_ns
        rings = False
        for number in range(count):
            descriptor = ready[number].data.fd
            if descriptor == shared.stop:
                return NULL
            pthread_mutex_lock(&shared.lock)
            stream = &shared.streams[descriptor]
            if stream.followed:  # else Python has taken it back
                if stream.over:
                    goes_on = False
                elif late:
                    goes_on = _read_pieces(stream, descriptor, buffer, woke_ns, ahead_ns)
                else:
                    goes_on = _read(stream, descriptor, buffer, READ_BYTES, woke_ns, ahead_ns)
                goes_on = goes_on and stream.length + KEPT_BYTES * stream.events < MOST_BYTES
                if not goes_on:
                    epoll_ctl(shared.epoll, EPOLL_CTL_DEL, descriptor, NULL)
                    stream.followed = False
                if not goes_on or stream.answer_ended or stream.unlike or stream.events >= MOST_EVENTS:  # many are passed on while reading continues
                    rings = _queue_for_release(shared, stream, descriptor) or rings
            pthread_mutex_unlock(&shared.lock)
        if rings:
            write_descriptor(shared.bell, &one, sizeof(one))


cdef void _free(Stream *stream) noexcept nogil:
    free(stream.data)
    free(stream.times_ns)
    free(stream.ends)
    free(stream.ids)


cdef class EventReader:
    """See ``event_reader.pyi``."""

    cdef Shared _shared
    cdef pthread_t _thread
    cdef bint _runs

    def __cinit__(self):
        cdef epoll_event event
        cdef sigset_t all_signals, before
        cdef int problem
        self._shared.epoll = self._shared.bell = self._shared.stop = -1
        pthread_mutex_init(&self._shared.lock, NULL)
        self._shared.buffer = <char *>malloc(READ_BYTES)
        if self._shared.buffer == NULL:
            raise MemoryError
        self._shared.epoll = _checked(epoll_create1(EPOLL_CLOEXEC))
        self._shared.bell = _checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
        self._shared.stop = _checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))
        event.events = EPOLLIN
        event.data.fd = self._shared.stop
        _checked(epoll_ctl(self._shared.epoll, EPOLL_CTL_ADD, self._shared.stop, &event))
        sigfillset(&all_signals)
        pthread_sigmask(SIG_SETMASK, &all_signals, &before)  # Python's threads handle signals
        problem = pthread_create(&self._thread, NULL, _read_all, &self._shared)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if problem:
            raise OSError(problem, os.strerror(problem))
        self._runs = True

    def __dealloc__(self):
        cdef int number
        self._end()
        for number in range(self._shared.streams_room):
            _free(&self._shared.streams[number])
        free(self._shared.streams)
        free(self._shared.given_back)
        free(self._shared.buffer)
        pthread_mutex_destroy(&self._shared.lock)

    def close(self):
        self._end()

    def fileno(self):
        return self._shared.bell

    def given_back(self):
        cdef int descriptor = -1
        cdef uint64_t rung
        cdef int number = 0
        read_descriptor(self._shared.bell, &rung, sizeof(rung))
        found = []
        while number >= 0:  # no object is made under the lock: that may start a garbage collection, which runs any code
            pthread_mutex_lock(&self._shared.lock)
            self._shared.given_back_count -= 1
            number = self._shared.given_back_count
            if number < 0:
                self._shared.given_back_count = 0
            else:
                descriptor = self._shared.given_back[number]
            pthread_mutex_unlock(&self._shared.lock)
            if number >= 0:
                found.append(descriptor)
        return found

    def follow(self, int descriptor, int64_t emptied_ns):
        self._follow(descriptor, emptied_ns, False, 0)

    def follow_messages(self, int descriptor, int64_t emptied_ns, uint32_t next_id):
        self._follow(descriptor, emptied_ns, True, next_id)

    def open_streams(self, int descriptor, uint32_t next_id):
        if not 0 <= descriptor < self._shared.streams_room:
            raise ValueError(f"descriptor {descriptor} was never followed")
        pthread_mutex_lock(&self._shared.lock)
        self._shared.streams[descriptor].next_id = next_id
        pthread_mutex_unlock(&self._shared.lock)

    cdef _follow(self, int descriptor, int64_t emptied_ns, bint has_messages, uint32_t next_id):
        cdef epoll_event event
        cdef Stream *stream
        event.events = EPOLLIN
        event.data.fd = descriptor
        pthread_mutex_lock(&self._shared.lock)
        try:
            self._make_room(descriptor)
            stream = &self._shared.streams[descriptor]
            _checked(epoll_ctl(self._shared.epoll, EPOLL_CTL_ADD, descriptor, &event))
            stream.emptied_ns = emptied_ns
            stream.has_messages = has_messages
            stream.next_id = next_id
            self._shared.with_messages += has_messages
            stream.followed = True
        finally:
            pthread_mutex_unlock(&self._shared.lock)

    def release(self, int descriptor):
        cdef Stream stream = self._taken(descriptor)
        cdef size_t number, start = 0
        try:
            times_ns = [stream.times_ns[number] for number in range(stream.events)]
            events = []
            for number in range(stream.events):
                events.append(PyBytes_FromStringAndSize(stream.data + start, stream.ends[number] - start))
                start = stream.ends[number]
            rest = PyBytes_FromStringAndSize(stream.data + start, stream.length - start)
            is_over = bool(stream.over)
            return times_ns, events, rest, stream.rest_ns, is_over, stream.error, stream.emptied_ns, stream.unstamped
        finally:
            _free(&stream)

    def release_messages(self, int descriptor):
        cdef Stream stream = self._taken(descriptor)
        cdef size_t number, start = 0
        cdef list times_ns, messages, parts = []
        cdef dict of_streams = {}
        try:
            if stream.events and not stream.has_messages:
                raise ValueError(f"descriptor {descriptor} was followed for events")
            for number in range(stream.events):
                message = PyBytes_FromStringAndSize(stream.data + start, stream.ends[number] - start)
                start = stream.ends[number]
                if stream.ids[number] == 0:
                    parts.append((of_streams, stream.times_ns[number], message))
                    of_streams = {}
                    continue
                found = of_streams.get(stream.ids[number])
                if found is None:
                    of_streams[stream.ids[number]] = found = ([], [])
                times_ns, messages = found
                times_ns.append(stream.times_ns[number])
                messages.append(message)
            if of_streams:
                parts.append((of_streams, 0, b""))
            return parts, bool(stream.over), stream.error, stream.emptied_ns, stream.unstamped
        finally:
            _free(&stream)

    cdef Stream _taken(self, int descriptor):
        """Stop reading ``descriptor``; returns what was read, which must be freed."""
        cdef Stream stream
        cdef int other, kept = 0
        if not 0 <= descriptor < self._shared.streams_room:
            raise ValueError(f"descriptor {descriptor} was never followed")
        pthread_mutex_lock(&self._shared.lock)
        stream = self._shared.streams[descriptor]
        memset(&self._shared.streams[descriptor], 0, sizeof(Stream))
        self._shared.with_messages -= stream.has_messages
        if stream.followed:
            epoll_ctl(self._shared.epoll, EPOLL_CTL_DEL, descriptor, NULL)
        if stream.queued:  # it may be among those that ``given_back`` has not returned yet
            for other in range(self._shared.given_back_count):
                if self._shared.given_back[other] != descriptor:
                    self._shared.given_back[kept] = self._shared.given_back[other]
                    kept += 1
            self._shared.given_back_count = kept
        pthread_mutex_unlock(&self._shared.lock)
        return stream

    cdef _make_room(self, int descriptor):
        """Make room for ``descriptor`` in the tables; called with the lock held."""
        cdef int room = self._shared.streams_room, more = max(2 * room, descriptor + 1, 256)
        cdef void *grown
        if descriptor < room:
            return
        grown = realloc(self._shared.given_back, more * sizeof(int))
        if grown == NULL:
            raise MemoryError
        self._shared.given_back = <int *>grown
        grown = realloc(self._shared.streams, more * sizeof(Stream))
        if grown == NULL:
            raise MemoryError
        self._shared.streams = <Stream *>grown
        memset(self._shared.streams + room, 0, (more - room) * sizeof(Stream))
        self._shared.streams_room = more

    cdef void _end(self) noexcept:
        cdef uint64_t one = 1
        cdef int number
        if self._runs:
            self._runs = False
            write_descriptor(self._shared.stop, &one, sizeof(one))
            with nogil:
                pthread_join(self._thread, NULL)
        for number in (self._shared.epoll, self._shared.bell, self._shared.stop):
            if number >= 0:
                close_descriptor(number)
        self._shared.epoll = self._shared.bell = self._shared.stop = -1


cdef int _checked(int result) except -1:
    """The result of a system call. Raises OSError where it failed."""
    if result < 0:
        raise OSError(errno, os.strerror(errno))
    return result
