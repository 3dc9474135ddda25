"""``bench serve fill``: fill a configuration template. One verb, one module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from bench_cli.declared import Concern, option, takes


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench serve fill``."""

    in_place: bool = option(False, "-i", help="Write the result to the file instead of stdout.")


@cloup.command(
    name="fill",
    short_help="Fill the ${…} of a config.pbtxt template.",
    epilog="""\b
Examples:
  bench serve fill -i repo/tensorrt_llm/config.pbtxt triton_max_batch_size:64,decoupled_mode:True
  bench serve fill repo/tensorrt_llm/config.pbtxt 'gpu_device_ids:0\\,1' > config.pbtxt""",
)
@cloup.argument("template", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="The config.pbtxt.")
@cloup.argument("substitutions", required=False, default="", help="key:value,…; escape them in a value as \\, and \\:.")
@takes(Options)
def command(options: Options, template: Path, substitutions: str) -> None:
    """Replace each ${key} of a template by its value, as upstream's fill_template.py does.

    max_queue_size and max_queue_delay_microseconds are 0 by default. Any other ${…} without a value stays, and is listed on
    stderr.
    """
    from serving.errors import TemplateError
    from serving.repository.template import fill_template, parse_substitutions

    try:
        text = template.read_bytes().decode("utf-8")  # as bytes, to preserve line ends
        filled = fill_template(text, parse_substitutions(substitutions))
    except UnicodeDecodeError:
        raise click.UsageError(f"{template} is not UTF-8 text") from None
    except TemplateError as error:
        raise click.UsageError(f"{template}: {error}") from None
    for key in filled.unused:
        click.echo(f"Note: {template} has no ${{{key}}}; is it already filled?", err=True)
    if filled.unfilled:
        click.echo(f"Note: {template} still has a ${{…}} for {', '.join(filled.unfilled)}.", err=True)
    if options.in_place:
        template.write_bytes(filled.text.encode("utf-8"))
    else:
        click.echo(filled.text, nl=False)
