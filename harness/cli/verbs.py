"""The group ``bench``: its verbs, one file each. Heavy imports wait inside the verbs, so that ``--help`` is quick."""

from __future__ import annotations

import cloup

from harness.cli import (
    calibrate,
    compare,
    dataset,
    doctor,
    engine,
    experiment,
    generate,
    recover,
    report,
    serve,
    sweep,
    token_norm_dist,
    trend,
)
from harness.cli.group import BenchGroup

bench = BenchGroup(
    name="bench",
    sections=[
        cloup.Section("Measure", [dataset.command, token_norm_dist.command, experiment.command, sweep.command]),
        cloup.Section("Read runs", [report.command, compare.command, trend.command, recover.command]),
        cloup.Section("Trust", [calibrate.command]),
        cloup.Section("Deploy and ask", [serve.command, generate.command, engine.command, doctor.command]),
    ],
    help="""Deploy a language model the way tensorrtllm_backend does, and measure what the deployment can take.

Without --url, a measuring verb deploys the embedded pipeline (Triton, five models, a CPU engine) on free loopback ports
for the length of the run.

Options may stand before or after the verb, with underscores or hyphens.""",
    epilog="""\b
Examples:
  bench dataset --request_rate 10
  bench -i grpc --request_rate 10 token_norm_dist --input_mean 128 --input_stdev 5 --output_mean 20 --output_stdev 2
  bench dataset --url localhost:8001 --model ensemble --dataset prompts.json --tokenizer_dir ./llama
  bench serve --grpc_port 8001
  bench report runs/<run>
  bench compare runs/<before> runs/<after> --output compare.html
  bench recover runs/<run>

\b
Exit status: 0 valid, 1 the target or the run failed, 2 usage, 3 the run is not valid, 130 interrupted.""",
)
