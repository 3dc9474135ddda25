"""The command ``bench``: one file a verb. Heavy imports wait inside the verbs, so that ``--help`` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
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
from harness.cli.exit_status import ExitStatus
from harness.cli.group import BenchGroup
from reports.plain_text import printable_lines


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: run a verb and exit with its status."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(argv: list[str]) -> int:
    """Run a verb and return its exit status. What a user can get wrong becomes one sentence on stderr."""
    try:
        status = bench.main(args=argv, prog_name="bench", standalone_mode=False)
        return int(status or ExitStatus.VALID)
    except click.UsageError as error:
        error.show()
        return ExitStatus.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away
        sys.stderr.close()
        return ExitStatus.FAILED
    except Exception as error:
        known = _known_status(error)
        if known is None:
            raise
        click.echo(f"Error: {printable_lines(str(error))}", err=True)
        return known


def _known_status(error: Exception) -> ExitStatus | None:
    """The exit status for an error whose text is meant for users, or None. Imported late: most runs need none of it."""
    from harness.errors import HarnessError
    from harness.records.run_folder import RunFolderError
    from reports.op_stats import CheckPerfError, OpStatsError
    from serving.errors import ServingError
    from workloads.errors import WorkloadError

    if isinstance(error, WorkloadError | CheckPerfError):
        return ExitStatus.USAGE
    if isinstance(error, HarnessError | ServingError | RunFolderError | OpStatsError | OSError):
        return ExitStatus.FAILED
    return None


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
