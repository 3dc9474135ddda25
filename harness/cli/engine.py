"""``bench engine build``: turn a checkpoint into an engine."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

_FOLDER = click.Path(path_type=Path, file_okay=False)


@cloup.group(name="engine", short_help="Build engines from checkpoints.")
def command() -> None:
    """Build engines from Hugging Face checkpoints."""


@command.command(
    name="build",
    epilog="Example: bench engine build --engine openvino --model_dir ./my-llama --output_dir ./my-engine",
)
@cloup.option("--engine", type=click.Choice(["openvino"]), default="openvino", help="Which engine to build for.")
@cloup.option("--model_dir", type=_FOLDER, required=True, help="Hugging Face checkpoint with its tokenizer.")
@cloup.option("--output_dir", type=_FOLDER, required=True, help="New or empty folder for the engine.")
@cloup.option("--weight_format", type=click.Choice(["fp32", "fp16", "int8"]), default="fp16", help="How weights are stored.")
def build(engine: str, model_dir: Path, output_dir: Path, weight_format: str) -> None:
    """Build an engine folder: the network for the engine, and the tokenizer. Needs the extra [export]."""
    from serving.engines.building import build_openvino_engine

    build_openvino_engine(model_dir, output_dir, weight_format)
    click.echo(f"Engine: {output_dir}")
