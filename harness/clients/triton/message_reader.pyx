# cython: language_level=3, boundscheck=True, wraparound=False
"""Cuts a response of Triton into its parts: one pass over the bytes, where it has the usual fields and nothing unusual.

The parser of protocol buffers makes an object for each message and each field before it can say which they are. What is cut
here is what ``messages.py`` reads of them, and everything unusual is left to it: it defines what a response means.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII

cdef enum:  # tags of fields with a length (protobuf.dev/programming-guides/encoding), by the definitions of Triton
    INFER_RESPONSE = 2 << 3 | 2  # of ModelStreamInferResponse; the others of ModelInferResponse
    MODEL_NAME = 1 << 3 | 2
    MODEL_VERSION = 2 << 3 | 2
    ID = 3 << 3 | 2
    PARAMETERS = 4 << 3 | 2
    OUTPUTS = 5 << 3 | 2
    RAW_OUTPUT_CONTENTS = 6 << 3 | 2


cdef Py_ssize_t _length(const char *data, Py_ssize_t *at, Py_ssize_t stop) noexcept:
    """The length at ``at``, a varint; ``at`` moves past it. -1 where fewer bytes than that follow, or it is unusually long."""
    cdef Py_ssize_t value = 0
    cdef int shift
    cdef unsigned char byte
    for shift in range(0, 28, 7):
        if at[0] >= stop:
            return -1
        byte = <unsigned char>data[at[0]]
        at[0] += 1
        value |= <Py_ssize_t>(byte & 0x7F) << shift
        if not byte & 0x80:
            return value if value <= stop - at[0] else -1
    return -1


cdef bint _is_ascii(const char *data, Py_ssize_t length) noexcept:
    cdef Py_ssize_t number
    for number in range(length):
        if <unsigned char>data[number] & 0x80:
            return False
    return True


def parts_of(bytes body not None, bint streamed):
    cdef const char *data = PyBytes_AS_STRING(body)
    cdef Py_ssize_t at = 0, stop = PyBytes_GET_SIZE(body), length, start, outputs_start = 0, outputs_stop = 0
    cdef Py_ssize_t id_start = 0, id_length = 0
    cdef unsigned char tag
    cdef list parameters = [], contents = []
    if streamed:
        if stop == 0 or data[0] != INFER_RESPONSE:
            return None
        at = 1
        length = _length(data, &at, stop)
        if length != stop - at:
            return None
    while at < stop:
        start = at
        tag = <unsigned char>data[at]
        at += 1
        length = _length(data, &at, stop)
        if length < 0:
            return None
        if tag == RAW_OUTPUT_CONTENTS:
            contents.append(PyBytes_FromStringAndSize(data + at, length))
        elif tag == OUTPUTS:
            if outputs_stop == 0:
                outputs_start = start
            elif outputs_stop != start:
                return None
            outputs_stop = at + length
        elif tag == PARAMETERS:
            parameters.append(PyBytes_FromStringAndSize(data + at, length))
        elif tag == ID or tag == MODEL_NAME or tag == MODEL_VERSION:
            if not _is_ascii(data + at, length):
                return None
            if tag == ID:
                id_start = at
                id_length = length
        else:
            return None
        at += length
    outputs = PyBytes_FromStringAndSize(data + outputs_start, outputs_stop - outputs_start)
    return PyUnicode_DecodeASCII(data + id_start, id_length, NULL), outputs, contents, parameters
