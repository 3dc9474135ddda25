"""``bench config``: the options of a recorded run as the TOML file that ``--config`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_errors import ExitStatus
from harness.clients.secret_values import HIDDEN

if TYPE_CHECKING:
    from bench_records.manifest import Manifest
    from bench_records.run_folder import RunFolder

_WRITTEN = ("plots", "step_log")  # of a run, beside its folder
OF_ONE_RUN = ("run_dir", *_WRITTEN, "config")
"""The options, as they are spelled, that another run does not repeat: it needs folders and files of its own."""


@cloup.command(
    name="config",
    epilog="""\b
Examples:
  bench config runs/<run> > bench.toml
  bench token_norm_dist --config bench.toml --request_rate 20""",
)
@cloup.argument("run", type=click.Path(path_type=Path), help="A run's folder.")
@click.pass_context
def command(context: click.Context, run: Path) -> int:
    """Print the options of a recorded run as TOML: with --config, the same requests are sent at the same times. bench
    replay does so at once.

    Options at their default are comments. Secrets were not recorded, and --config asks for them again; --run_dir,
    --plots and --step_log are left out, since another run needs folders and files of its own.
    """
    from bench_records.run_folder import RunFolder

    folder = RunFolder(run)
    manifest = folder.read_manifest()
    click.echo(configuration(manifest, measuring_verb(context, folder, manifest)), nl=False)
    return ExitStatus.VALID


def measuring_verb(context: click.Context, folder: RunFolder, manifest: Manifest) -> click.Command:
    """The verb by which the run in ``folder`` was measured. Raises RunFolderError for a run that cannot be repeated.

    A run may come from elsewhere, so that any other verb than a measuring one is refused.
    """
    from bench_cli.measurement.options import MEASURING_VERBS
    from bench_records.run_folder import RunFolderError

    group, verb = context.find_root().command, str(manifest.verb)
    measuring = None
    if isinstance(group, click.Group) and verb in MEASURING_VERBS:
        measuring = group.get_command(context, verb)
    if measuring is None or not manifest.options:
        raise RunFolderError(f"{folder.manifest}: 'verb' or 'options' is not that of a run that this version can repeat")
    return measuring


def configuration(manifest: Manifest, measuring: click.Command) -> str:
    """The TOML of a manifest's options, by the parameters of its verb ``measuring``; ends with a newline."""
    recorded = _recorded(manifest)
    context = click.Context(measuring, info_name=measuring.name)
    chosen, defaults = list[str](), list[str]()
    for name, spelled, parameter in _options(measuring):
        value = recorded.get(name, recorded.get(spelled))
        if value is None or value in ([], {}):
            continue
        line = f"{spelled} = {_toml(value)}"
        if HIDDEN in str(value):
            chosen.append(f"{line}  # --config refuses this line: give the value that was not recorded")
        elif value == _plain(parameter.get_default(context)):
            defaults.append(f"# {line}")
        else:
            chosen.append(line)
    head = f"# bench {measuring.name} --config FILE"
    return "\n".join([head, *chosen, *(["", "# At their defaults:", *defaults] if defaults else [])]) + "\n"


def _recorded(manifest: Manifest) -> Mapping[str, object]:
    """The recorded values by option: the shared ones, those of the engine, and those of the workload."""
    from bench_cli.measurement.dataset import shipped_dataset
    from workloads.readers.detect import FORMATS

    options, workload = dict(manifest.options), dict(manifest.workload.parameters)
    settings = options.pop("engine_settings", None)
    if workload.get("dataset") == str(shipped_dataset()):
        del workload["dataset"]  # the default, at a place of this installation
    if workload.get("format") not in FORMATS:
        workload.pop("format", None)  # of requests that were drawn of clients, whose workload.parquet needs none
    if isinstance(options.get("extra_body"), dict) and options["extra_body"]:
        options["extra_body"] = json.dumps(options["extra_body"])
    return workload | (settings if isinstance(settings, dict) else {}) | options


def not_repeated(manifest: Manifest) -> list[str]:
    """The options, as they are spelled, by which the run wrote what another run does not write again."""
    recorded = _recorded(manifest)
    return [name for name in _WRITTEN if recorded.get(name)]


def _options(measuring: click.Command) -> Iterator[tuple[str, str, click.Option]]:
    """The name, the spelling and the parameter of each option that another run can take."""
    for parameter in measuring.params:
        if isinstance(parameter, click.Option) and parameter.name:
            long_options = [option for option in parameter.opts if option.startswith("--")]
            spelled = long_options[0].removeprefix("--").replace("-", "_") if long_options else parameter.name
            if spelled not in OF_ONE_RUN:
                yield parameter.name, spelled, parameter


def _plain(default: Any) -> Any:
    """A parameter's default as JSON has it."""
    return default if default is None or isinstance(default, bool | int | float) else str(default)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value) if isinstance(value, int | float) else f'"{"".join(map(_toml_character, str(value)))}"'


def _toml_character(character: str) -> str:
    """A character of a basic string (TOML 1.0): quotes, backslashes and what does not print are escaped."""
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
