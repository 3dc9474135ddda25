"""Options that every measuring verb shares. Spelled as upstream's README spells them where upstream has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import cloup

from harness.cli.engine_options import ENGINE_OPTION_NAMES, engine_group
from harness.cli.measurement.http_options import Header, read_endpoint, read_extra_body, read_headers
from harness.cli.measurement.load_options import load_group


@dataclass(frozen=True)
class MeasureOptions:
    """The values of the shared options; see each option's help."""

    url: str | None
    protocol: str
    model: str | None
    streaming: bool | None
    tokenizer_dir: Path | None
    endpoint: str | None
    header: tuple[Header, ...]
    extra_body: dict[str, Any]
    engine_dir: Path | None
    decoupled_mode: bool
    engine_settings: dict[str, Any]
    request_rate: float
    time_delay_dist: str
    burstiness: float | None
    max_concurrency: int | None
    concurrency: int | None
    duration: float | None
    ramp_up: float | None
    num_requests: int | None
    max_input_len: int | None
    ignore_eos: bool | None
    seed: int
    workers: int | None
    pin_workers: bool | None
    connections: int | None
    warmup_requests: int
    request_timeout: float
    metrics_url: str | None
    telemetry_period: float
    run_dir: Path | None
    plots: Path | None
    op_stats_csv: Path | None
    dump_perfetto_trace: bool
    check_perf_json: Path | None
    check_perf_key: str | None
    check_perf_rtol: float
    check_perf_atol: float
    slo: tuple[str, ...]

    def written_down(self) -> dict[str, Any]:
        """For the manifest: plain values, without secrets."""
        return {name: _written_down(value) for name, value in vars(self).items()}


def _written_down(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written_down(item) for item in value]
    if isinstance(value, dict):
        return {name: _written_down(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path | Header) else value


def _objectives(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each objective as it is written in full; imported late, for it needs numpy."""
    if not texts:
        return ()
    from reports.metrics.goodput import parse_objective

    try:
        return tuple(str(parse_objective(text)) for text in texts)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


def refuse_unstreamed_objectives(objectives: tuple[str, ...], streaming: bool) -> None:
    """Raises click.UsageError for an objective that an unstreamed run cannot tell: there, all tokens come together."""
    if objectives and not streaming:
        from reports.metrics.goodput import NEED_STREAMING, parse_objective

        for text in objectives:
            if parse_objective(text).metric in NEED_STREAMING:
                raise click.UsageError(f"--slo {text} needs streamed answers (--streaming); use e2e_ms")


slo_option = cloup.option(
    "--slo",
    multiple=True,
    metavar="METRIC<=MS",
    callback=_objectives,
    help="Objective of each request, as 'ttft_ms<=200'; of ttft_ms, tpot_ms, e2e_ms; may be repeated. Adds goodput.",
)

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)

_target = cloup.option_group(
    "What to measure",
    cloup.option(
        "-u",
        "--url",
        help="host:port of a running server, by HTTP also http(s)://host:port; without it the embedded pipeline is deployed.",
    ),
    cloup.option(
        "-i",
        "--protocol",
        type=click.Choice(["grpc", "http", "openai"]),
        default="grpc",
        help="Protocol to speak: Triton's gRPC, its generate extension over HTTP, or OpenAI's chat completions.",
    ),
    cloup.option(
        "-m",
        "--model",
        show_default="tensorrt_llm; for openai the server's only model",
        help="Model to drive: tensorrt_llm takes token ids, ensemble and tensorrt_llm_bls take text.",
    ),
    cloup.option(
        "--streaming/--no_streaming",
        default=None,
        show_default="streaming where the model is decoupled",
        help="Ask for answers token by token.",
    ),
    cloup.option(
        "--tokenizer_dir",
        type=_FOLDER,
        help="Hugging Face tokenizer folder. Default: the engine's, or the one that the server names if it is here.",
    ),
)
_http = cloup.option_group(
    "Over HTTP (-i http, -i openai)",
    cloup.option(
        "--endpoint",
        callback=read_endpoint,
        show_default="/v1/chat/completions",
        help="Path of OpenAI's chat completions. A key is read from the environment variable OPENAI_API_KEY.",
    ),
    cloup.option(
        "--header", multiple=True, callback=read_headers, help="'Name: value' of a header of every request; repeatable."
    ),
    cloup.option(
        "--extra_body",
        callback=read_extra_body,
        help='JSON object with more fields for every request to OpenAI\'s protocol, such as {"temperature": 0}.',
    ),
)
_embedded = cloup.option_group(
    "The embedded pipeline (without --url)",
    cloup.option("--engine_dir", type=_FOLDER, help="Engine folder made by 'bench engine build'. Default: the demo engine."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Deploy decoupled models, which can stream."),
)
_traffic = cloup.option_group(
    "Traffic",
    cloup.option("--max_input_len", type=click.IntRange(min=1), help="Drop prompts with more tokens, and say how many."),
    cloup.option(
        "--ignore_eos/--no_ignore_eos",
        default=None,
        show_default="on for token_norm_dist, but not by -i openai; off for dataset",
        help="Generate exactly as many tokens as asked.",
    ),
    cloup.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of lengths, token ids and arrivals."),
    cloup.option("--warmup_requests", type=click.IntRange(min=0), default=10, help="Requests before the clock starts."),
    cloup.option(
        "-t",
        "--request_timeout",
        "--stream_timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        help="Seconds after which a request counts as failed.",
    ),
)
_telemetry = cloup.option_group(
    "The server's own numbers",
    cloup.option(
        "--metrics_url",
        show_default="port 8002 of --url's host; the embedded pipeline's own",
        help="Where the server tells its metrics in Prometheus's format: http://host:port/path.",
    ),
    cloup.option(
        "--telemetry_period",
        type=click.FloatRange(min=0),
        default=1.0,
        help="Seconds between two readings of the metrics; 0 reads none.",
    ),
)
_output = cloup.option_group(
    "Output",
    cloup.option("--run_dir", type=_FOLDER, help="Folder of this run. Default: runs/<time>-<verb>."),
    cloup.option("--plots", type=_FOLDER, help="Write each picture as PNG and SVG into this folder, fit for a paper."),
    cloup.option("--op_stats_csv", type=_FILE, help="Append upstream's statistics to this CSV file."),
    cloup.option("--dump_perfetto_trace", is_flag=True, help="Write perfetto.json into the run's folder (ui.perfetto.dev)."),
    cloup.option("--check_perf_json", type=_FILE, help='Check against reference numbers: {"key": {"Requests/Sec": 10, …}}.'),
    cloup.option("--check_perf_key", help="Entry of --check_perf_json to check against."),
    cloup.option(
        "--check_perf_rtol",
        type=click.FloatRange(min=0),
        default=0.05,
        help="How much worse than its reference a metric may be, as a share of it.",
    ),
    cloup.option(
        "--check_perf_atol",
        type=click.FloatRange(min=0),
        default=0.0,
        help="The same in the metric's own unit, added to the share.",
    ),
    slo_option,
)


def measure_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a verb with every shared option."""
    for group in (_output, _telemetry, load_group, _traffic, engine_group, _embedded, _http, _target):
        function = group(function)
    return function


def split_options(values: dict[str, Any]) -> tuple[MeasureOptions, dict[str, Any]]:
    """Part a verb's values into the shared options and its own."""
    values["engine_settings"] = {name: values.pop(name) for name in ENGINE_OPTION_NAMES}
    shared = {name: values.pop(name) for name in MeasureOptions.__dataclass_fields__}
    return MeasureOptions(**shared), values
