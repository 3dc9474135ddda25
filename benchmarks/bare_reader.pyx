# cython: language_level=3
"""What reading costs without an interpreter: an epoll and a read for each readable socket, whose bytes are dropped.

Compiled by ``reading_floor.py`` when it starts.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.unistd cimport close as close_descriptor

import os


cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        void *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
    ssize_t recv(int, void *, size_t, int)
    ssize_t recvmsg(int, msghdr *, int)
    enum:
        MSG_DONTWAIT

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

cdef enum:
    READ_BYTES = 65536
    READY_AT_ONCE = 64


def read_until_quiet(descriptors, int quiet_ms, bint stamped):
    """Read until nothing has come for ``quiet_ms``; returns the reads and the wake-ups. Raises OSError."""
    cdef epoll_event ready[READY_AT_ONCE]
    cdef epoll_event event
    cdef char control[128]
    cdef char buffer[READ_BYTES]
    cdef iovec part
    cdef msghdr message
    cdef int64_t reads = 0, wakes = 0
    cdef int epoll = epoll_create1(EPOLL_CLOEXEC), count, number
    cdef ssize_t got = 0
    event.events = EPOLLIN
    for descriptor in descriptors:
        event.data.fd = descriptor
        if epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0:
            raise OSError(errno, os.strerror(errno))
    with nogil:
        part.iov_base = buffer
        part.iov_len = READ_BYTES
        while True:
            count = epoll_wait(epoll, ready, READY_AT_ONCE, quiet_ms)
            if count <= 0:
                break
            wakes += 1
            for number in range(count):
                if stamped:
                    memset(&message, 0, sizeof(message))
                    message.msg_iov = &part
                    message.msg_iovlen = 1
                    message.msg_control = control
                    message.msg_controllen = sizeof(control)
                    got = recvmsg(ready[number].data.fd, &message, MSG_DONTWAIT)
                else:
                    got = recv(ready[number].data.fd, buffer, READ_BYTES, MSG_DONTWAIT)
                if got == 0 or (got < 0 and errno != EAGAIN and errno != EINTR):
                    break
                reads += 1
    close_descriptor(epoll)
    return reads, wakes
