"""``bench capacity``: the highest load at which limits hold, with its confidence."""

from __future__ import annotations

import click
import cloup

from bench_cli.declared import takes
from bench_cli.experiments.capacity_options import Options
from bench_cli.forwarded_options import FORWARDS_OPTIONS, run_arguments


@cloup.command(
    name="capacity",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench capacity --slo 'p99_ttft<=500ms' --slo 'p99_tpot<=50ms' token_norm_dist --isl 128 --osl 20
  bench capacity --slo_preset llama3.1-8b --slo_preset llama3.1-8b-interactive --budget 1h dataset --url gpu:8000 -i openai
  bench capacity --slo 'attainment>=99%' --slo 'ttft<=300ms' --slo 'e2e<=5s' trace conversations.csv
  bench capacity --slo 'p99_ttft<=1s' --max_users 200 dataset --url gpu:8001
  bench capacity --slo 'p99_ttft<=500ms' --over max_num_sequences=16,64,256 dataset
  bench capacity --experiment_dir runs/<search> --budget 1h

\b
Exit status: 0 a load is certified for each set of limits (with --over, of one setting), 1 none is or the target failed,
2 usage, 3 the probes are not valid (with --over, those of a setting), 130 interrupted.""",
)
@takes(Options)
@run_arguments
@click.pass_context
def command(context: click.Context, options: Options, arguments: tuple[str, ...]) -> int:
    """Find the highest load at which the limits hold, and the lowest at which they do not: "holds 61 requests/s, 74 fails".

    A short closed loop shows where to start; then each probe is a run at a rate of its own, where it teaches most. The answer
    rests on all of them together, and is true of the search as a whole at --confidence. A load whose queue grows fails at once,
    and a probe ends early where 20 times as many requests as allowed are beyond a limit. The search ends when the answer is as
    precise as requested, or the --budget is spent, and says what more would buy.

    A limit is one on a share of the requests: of p99_ttft<=500ms, 1 % may take longer. A failed request is beyond each limit,
    except one on itl, which counts single tokens.

    With --over, the capacities of several settings are searched in turns and ranked: which setting holds more than which. All
    that it says is right together at --confidence. The embedded pipeline is deployed anew for each turn of a setting.

    Without it, the embedded pipeline is deployed once for all probes. A dataset is sent again from its start where a probe
    needs more. Ctrl-C keeps what is measured; the same command with its --experiment_dir, or that option alone, goes on, also
    with a longer --budget or another --precision. The folder gets capacity.html, and the report of each probe; that of several
    settings gets ranking.html.
    """
    from bench_cli.experiments.rank_command import rank
    from bench_cli.experiments.search_command import search
    from bench_cli.searches import is_ranking

    folder = options.effort.experiment_dir
    ranks = options.ranking.over or (not arguments and folder is not None and is_ranking(folder))
    return (rank if ranks else search)(context, options, arguments)
