"""``requests.parquet``: one row a record, in the order of the schedule. Writer and reader.

A module of its own beside ``record.py``, which workers import, and which must not load Arrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench_records.column import RUN_CLOCK, Column, schema_of
from bench_records.parquet_table import arrow_array, read_columns, write_columns
from bench_records.record import Record

_NOT_SENT = "not sent, or unknown"
_NOT_COUNTED = "nothing counted them"
_NOT_TIMED = "the server did not return it (`--server_timings` asks for it)"
_NOT_STAMPED = "the server did not return it (`--server_timings` asks for it; vLLM has none)"

REQUEST_COLUMNS = (
    Column("index", pa.int64(), "", "number of the request in the schedule"),
    Column(
        "outcome", pa.string(), "", "`done`, `withdrawn` (cancelled as planned), or the kind of failure: a value of `Outcome`"
    ),
    Column(
        "scheduled_ns",
        pa.int64(),
        RUN_CLOCK,
        "when the request should have been sent: by the schedule, or in a closed loop when its user was free",
    ),
    Column("requested_output_tokens", pa.int64(), "tokens", "the requested number of tokens of the answer, at most"),
    Column(
        "released_ns",
        pa.int64(),
        RUN_CLOCK,
        "when the request could be sent: later than `scheduled_ns` where it waited at the ceiling of `--max_concurrency`",
        _NOT_SENT,
    ),
    Column("sent_ns", pa.int64(), RUN_CLOCK, "just before the request was written to the kernel", _NOT_SENT),
    Column(
        "done_ns", pa.int64(), RUN_CLOCK, "end of the answer, or of the attempt", "not sent, or the end is unknown (`lost`)"
    ),
    Column(
        "token_times_ns",
        pa.list_(pa.int64()),
        RUN_CLOCK,
        "arrival of each response that carries generated tokens, by the kernel's time stamp where there is one; empty where "
        "none came",
    ),
    Column(
        "token_counts",
        pa.list_(pa.int64()),
        "tokens",
        "generated tokens of each of these responses",
        "the tokens of single responses are unknown",
    ),
    Column(
        "input_tokens",
        pa.int64(),
        "tokens",
        "length of the prompt: the server's count, else the client's",
        _NOT_COUNTED,
    ),
    Column("output_tokens", pa.int64(), "tokens", "generated tokens; an echoed prompt is not counted", _NOT_COUNTED),
    Column(
        "output_tokens_source",
        pa.string(),
        "",
        "the source of `output_tokens`: `server` (its count), `ids` (the ids returned), `chunks` (one token in each, as in the "
        "server's complete answers), `text` (tokenised again)",
        "`output_tokens` is unknown",
    ),
    Column("prompt_echoed", pa.bool_(), "", "whether the answer began with the prompt", "it is unknown"),
    Column("ignore_eos", pa.bool_(), "", "whether the model was asked to generate on after its end token"),
    Column("error", pa.string(), "", "the message of a failure", "no failure"),
    Column(
        "worker", pa.int64(), "", "number of the worker process that sent the request", "no worker is known to have sent it"
    ),
    Column("session", pa.string(), "", "name of the conversation that the request belongs to", "it belongs to none"),
    Column(
        "text_tokens",
        pa.int64(),
        "tokens",
        "the returned text, tokenised by the client to check the server's count",
        "not checked: one answer in 16 is, where a tokenizer is known",
    ),
    Column("has_reasoning", pa.bool_(), "", "whether the server marked a part of the answer as reasoning", "no answer came"),
    Column(
        "first_output_ns",
        pa.int64(),
        RUN_CLOCK,
        "of an answer with reasoning: arrival of the first response that has text besides it",
        "the answer has no reasoning, or nothing else",
    ),
    Column(
        "requested_input_tokens",
        pa.int64(),
        "tokens",
        "length that a prompt was made for, and the client's count of another; without those of a chat template",
        "the client has no tokenizer",
    ),
    Column(
        "server_counted_input",
        pa.bool_(),
        "",
        "whether `input_tokens` is the server's count rather than the client's",
        "no answer",
    ),
    Column(
        "parent",
        pa.int64(),
        "",
        "`index` of the request whose answer this turn of a session waited for; of several, the one before it in its session, "
        "or the failed one of a turn that was not sent",
        "it waited for none",
    ),
    Column(
        "planned_ns",
        pa.int64(),
        RUN_CLOCK,
        "the turn's own time; `scheduled_ns` is later only where the answer that it waited for ended later",
        "the turn has no time of its own, or waited for none",
    ),
    Column(
        "cached_input_tokens",
        pa.int64(),
        "tokens",
        "those of `input_tokens` that the server found in its prefix cache (`cached_tokens` of OpenAI's usage)",
        "the server did not report it; some leave it out where it is 0",
    ),
    Column("traffic_class", pa.string(), "", "name of the request's class in a mixture (`--class`)", "it has none"),
    Column(
        "cancel_after_ns",
        pa.int64(),
        "ns",
        "time from `sent_ns` after which the request was to be cancelled (`--cancel`)",
        "it was not to be cancelled, or with a token",
    ),
    Column(
        "cancel_after_tokens",
        pa.int64(),
        "tokens",
        "number of tokens with which the request was to be cancelled (`--cancel`)",
        "it was not to be cancelled, or after a time",
    ),
    Column(
        "finish_reason",
        pa.string(),
        "",
        "why the answer ended, by the server: `finish_reason` of OpenAI's protocols, of the first choice to end",
        "the server sent none for one of the choices, or the protocol has none",
    ),
    Column(
        "end_marker_missing",
        pa.bool_(),
        "",
        "whether the answer ended in order but without the end marker of its protocol (`[DONE]`)",
        "the run is older than this column",
    ),
    Column(
        "server_arrival_ns",
        pa.int64(),
        "ns, monotonic clock of the server",
        "when the engine took the request in; on one host the run clock counts on the same clock, from the start of the run",
        _NOT_STAMPED,
    ),
    Column(
        "server_queue_ns",
        pa.int64(),
        "ns, clock of the server",
        "by the server, the time from the arrival at the engine to the first step that worked on the request",
        _NOT_TIMED,
    ),
    Column(
        "server_prefill_ns",
        pa.int64(),
        "ns, clock of the server",
        "by the server, the time from that step to the first token",
        _NOT_TIMED,
    ),
    Column(
        "server_decode_ns",
        pa.int64(),
        "ns, clock of the server",
        "by the server, the time from the first token to the last",
        _NOT_TIMED,
    ),
    Column(
        "connect_ns",
        pa.int64(),
        "ns",
        "time from `sent_ns` until a connection was open (TCP, and TLS where there is one), over which the request then went; "
        "over gRPC also until one had room for it",
        "it went at once over a connection that was open, or failed",
    ),
    Column(
        "router_ns",
        pa.int64(),
        "ns",
        "by the headers of Envoy or LiteLLM, the time in them until the head of the answer came; with Envoy it includes the "
        "network to it, and is known to 0.5 ms to either side",
        "no router said it, or the request failed",
    ),
    Column(
        "target",
        pa.int64(),
        "",
        "number of the target that the request was sent to, from 0 on in the order of `--url`, as `targets` of `run.json`",
        "no target is known to have been sent it, or the run is older than this column",
    ),
    Column(
        "text_chunks",
        pa.int64(),
        "",
        "the number of chunks with a piece of an answer that came as text, empty ones included; an empty one that only ends "
        "the answer counts where the server's count of tokens includes it",
        "each response had ids or a count of its own, no answer came, or the run is older than this column",
    ),
    Column(
        "written_ns",
        pa.int64(),
        RUN_CLOCK,
        "when the kernel was given the last byte of the request",
        "over TLS, the request failed, its answer ended before, or the run is older than this column",
    ),
    Column(
        "head_ns",
        pa.int64(),
        RUN_CLOCK,
        "arrival of the head of the answer: of HTTP/1.1 its status and header fields, over gRPC its first frame of headers",
        "the request failed, or the run is older than this column",
    ),
    Column(
        "empty_chunks",
        pa.int64(),
        "",
        "how many of `text_chunks` have no text, without one that only ends the answer",
        "`text_chunks` is unknown, or the run is older than this column",
    ),
    Column(
        "hidden_tokens",
        pa.int64(),
        "tokens",
        "those of `output_tokens` that the server counts as reasoning, and did not send; TPOT counts the others",
        "the server does not report them, sent its reasoning, or the run is older than this column",
    ),
)
"""The columns of ``requests.parquet``: the fields of Record in their order."""

_SCHEMA = schema_of(REQUEST_COLUMNS)
_OF_ANY_SIZE = ("server_arrival_ns",)  # on a clock that may count from the start of a host that has run for years


def write_table(records: Sequence[Record], path: Path) -> None:
    """Write ``records`` to ``path``; the file appears whole or not at all. Raises OSError."""
    write_columns(path, _SCHEMA, _arrays(records))


def table_of(records: Sequence[Record]) -> pa.Table:
    """The table that ``write_table`` writes."""
    return pa.Table.from_arrays(_arrays(records), schema=_SCHEMA)


def write_numbers(path: Path, values: Mapping[str, NDArray[np.float64]]) -> None:
    """Replace columns of whole numbers in the file at ``path``: for each name a value a row, shape [n], NaN for null.

    The file stays as it was where that fails. Raises OSError or pyarrow.ArrowInvalid.
    """
    table = read_table(path)
    for name, numbers in values.items():
        known = [None if math.isnan(number) else int(number) for number in numbers.tolist()]
        place = _SCHEMA.get_field_index(name)
        table = table.set_column(place, _SCHEMA.field(place), arrow_array(known, _SCHEMA.field(place).type))
    write_columns(path, _SCHEMA, table.columns)


def _arrays(records: Sequence[Record]) -> list[pa.Array]:
    return [arrow_array(list(map(attrgetter(field.name), records)), field.type) for field in _SCHEMA]


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read what ``write_table`` wrote; ``columns`` are fields of Record (None: all). Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA, columns, _OF_ANY_SIZE)
