"""The command of a recorded run with some options changed: what ``bench replay`` sends, and ``bench verify`` looks at."""

from __future__ import annotations

import copy
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup
from click.core import ParameterSource

from bench_cli.config import OF_ONE_RUN, configuration, measuring_verb, not_repeated
from bench_cli.declared import call_of
from bench_cli.measurement.config_option import defaults_of, options_by_spelling
from bench_cli.suggestions import near_names
from harness.clients.secret_values import HIDDEN

if TYPE_CHECKING:
    from bench_records.manifest import Manifest
    from bench_records.run_folder import RunFolder

_HEADER = "header"  # the parameter of --header, of which each is replaced by its own name
_FILE, _STANDARD_INPUT = "path", "-"  # the parameter of a dataset and of a trace
_SEVERAL = 2
_OTHER_SPELLINGS = {  # of one length: a run records --isl 128 as upstream's two options
    "isl": ("input_mean", "input_stdev"),
    "osl": ("output_mean", "output_stdev"),
    "input_mean": ("isl",),
    "input_stdev": ("isl",),
    "output_mean": ("osl",),
    "output_stdev": ("osl",),
}


def _read_run(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Callback of RUN. Raises UsageError for an option of the run's verb before it, which parsing left here."""
    if str(path).startswith("-"):
        raise click.UsageError(f"{path} comes after the folder of the run: bench {context.command.name} RUN {path}", context)
    return path


run_argument = cloup.argument(
    "run",
    cls=cloup.Argument,
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=_read_run,
    help="A run's folder.",
)
options_argument = cloup.argument(
    "options",
    cls=cloup.Argument,
    metavar="[RUN_OPTIONS]…",
    nargs=-1,
    type=click.UNPROCESSED,
    help="Options of the run's verb, which win over the recorded ones.",
)
left_out_options = cloup.option(
    "--without",
    multiple=True,
    metavar="OPTION",
    help="Leave out this recorded option, for example request_rate where --concurrency takes its place. Repeatable.",
)


@dataclass(frozen=True)
class RepeatedRun:
    """``context`` is that of the measuring verb of the run in ``folder``: its parameters are the recorded ones except those
    ``changed``, and those ``left_out`` since another run needs files of its own; both are in the words of the command line.
    """

    folder: RunFolder
    manifest: Manifest
    context: click.Context
    changed: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def verb(self) -> str:
        return str(self.context.command.name)


@contextmanager
def remedy_for_contradictions(repeated: RepeatedRun, command: str) -> Iterator[None]:
    """Within it a UsageError for options that contradict recorded ones has the remedy: ``command`` is the verb that repeats."""
    try:
        yield
    except click.UsageError as error:
        if not repeated.changed or type(error) is not click.UsageError:
            raise
        remedy = f"'bench {command} --without OPTION {repeated.folder.path} …' leaves a recorded option out"
        raise click.UsageError(f"{error.format_message()} ({remedy})", error.ctx) from error


def repeated_run(context: click.Context, folder: RunFolder, without: Sequence[str], options: Sequence[str]) -> RepeatedRun:
    """The command of the run in ``folder``, with ``options`` of its verb in place of recorded ones, and without those that
    ``without`` names. ``context`` is that of a verb of bench. The recorded --balance is left out where fewer than two servers
    remain.

    Raises RunFolderError for a run that cannot be repeated, UsageError for options that its verb does not take, and for
    secrets and a standard input, which were not recorded and are not among ``options``.
    """
    manifest = folder.read_manifest()
    recorded = _Recorded.of(folder, manifest, measuring_verb(context, folder, manifest))
    left_out_words = [word for name in without for word in ("--without", name)]
    parsed = recorded.command.make_context(
        str(manifest.verb), [*left_out_words, *options], parent=context.find_root(), default_map=dict(recorded.defaults)
    )
    if len(parsed.params["url"] or ()) < _SEVERAL and parsed.get_parameter_source("balance") is ParameterSource.DEFAULT_MAP:
        return repeated_run(context, folder, [*without, "balance"], options)  # over one server there is nothing to spread
    left_out = frozenset(parsed.params.pop("without"))
    secrets = [*recorded.missing_headers(parsed, left_out), *recorded.missing_secrets(parsed, left_out)]
    if secrets:
        again = " ".join(secrets)
        raise click.UsageError(f"{folder.path} was recorded without its secrets; give them again: {again}", parsed)
    if str(recorded.defaults.get(_FILE)) == _STANDARD_INPUT and _FILE not in (*left_out, *_given(parsed)):
        how = "FILE after RUN" if str(manifest.verb) == "trace" else "--dataset FILE"
        raise click.UsageError(
            f"{folder.path} read its requests from standard input, which is not recorded; give {how}", parsed
        )
    if _HEADER not in left_out:
        recorded.add_headers(parsed)
    _drop_other_spellings(parsed)
    not_again = tuple(f"--{name}" for name in not_repeated(manifest) if not parsed.params.get(name))
    return RepeatedRun(folder, manifest, parsed, tuple(_changed(parsed, left_out)), not_again)


@dataclass(frozen=True)
class _Recorded:
    """The values of a run's parameters by their names: ``defaults`` are repeated, ``hidden`` had a secret, and ``headers`` are
    the lines of --header. ``command`` is the run's verb with --without.
    """

    command: click.Command
    defaults: Mapping[str, Any]
    hidden: Mapping[str, str]
    headers: tuple[str, ...]

    @classmethod
    def of(cls, folder: RunFolder, manifest: Manifest, measuring: click.Command) -> _Recorded:
        """Raises RunFolderError where a recorded option is none of the verb's."""
        from bench_records.run_folder import unreadable

        try:
            values = defaults_of(tomllib.loads(configuration(manifest, measuring)), measuring)
        except ValueError as error:
            raise unreadable(folder.manifest, error) from error
        written = values.pop(_HEADER, ())
        headers = tuple(map(str, written)) if isinstance(written, list) else ()
        hidden = {name: str(value) for name, value in values.items() if HIDDEN in str(value)}
        files = {  # the file of a trace
            parameter.name: manifest.workload.parameters.get(str(manifest.verb))
            for parameter in measuring.params
            if isinstance(parameter, click.Argument) and parameter.name
        }
        defaults = {name: value for name, value in {**values, **files}.items() if name not in hidden and value is not None}
        return cls(_with_without(measuring, {*values, *([_HEADER] if headers else [])}), defaults, hidden, headers)

    def missing_headers(self, parsed: click.Context, left_out: frozenset[str]) -> Iterator[str]:
        """Each header with a secret that was not given, as it has to be given."""
        given = _names_of(parsed)
        for line in self.headers if _HEADER not in left_out else ():
            if HIDDEN in line and _name_of(line) not in given:
                yield _to_give("header", line)

    def missing_secrets(self, parsed: click.Context, left_out: frozenset[str]) -> Iterator[str]:
        """Each other option with a secret that was not given, as it has to be given."""
        for name, value in self.hidden.items():
            if name not in left_out and name not in call_of(parsed).given:
                yield _to_give(name, value)

    def add_headers(self, parsed: click.Context) -> None:
        """Add the recorded headers without a secret whose names are not given."""
        given = _names_of(parsed)
        lines = [line for line in self.headers if HIDDEN not in line and _name_of(line) not in given]
        parameter = next(parameter for parameter in parsed.command.params if parameter.name == _HEADER)
        parsed.params[_HEADER] += parameter.process_value(parsed, lines)


def _with_without(measuring: click.Command, recorded: set[str]) -> click.Command:
    """The verb with the option --without, whose value is the names of the parameters that it leaves out."""

    def leave_out(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
        options = options_by_spelling(measuring)
        left_out = []
        for written in names:
            name = written.lstrip("-").replace("-", "_")
            if name not in options:
                near = near_names(name, options)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise click.BadParameter(f"{written!r} is no option of {measuring.name}{hint}", context, parameter)
            if name in OF_ONE_RUN:
                raise click.BadParameter(f"{written!r} is never repeated, so it need not be left out", context, parameter)
            if options[name].name not in recorded:
                raise click.BadParameter(f"{written!r}: the run was measured without it", context, parameter)
            left_out.append(str(options[name].name))
        context.default_map = {key: value for key, value in (context.default_map or {}).items() if key not in left_out}
        return tuple(left_out)

    command = copy.copy(measuring)
    without = click.Option(["--without"], multiple=True, is_eager=True, callback=leave_out, hidden=True)
    command.params = [*measuring.params, without]
    return command


def _drop_other_spellings(parsed: click.Context) -> None:
    """Leave out what was recorded for a length that the command line gives in another spelling."""
    for name, others in _OTHER_SPELLINGS.items():
        if name in _given(parsed):
            recorded = [other for other in others if parsed.get_parameter_source(other) is ParameterSource.DEFAULT_MAP]
            parsed.params.update(dict.fromkeys(recorded))


def _given(parsed: click.Context) -> list[str]:
    """The parameters that the command line gives."""
    return [name for name in parsed.params if parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE]


def _names_of(parsed: click.Context) -> set[str]:
    """The names of the headers that are given, in lower case."""
    return {header.name.lower() for header in parsed.params[_HEADER]}


def _name_of(line: str) -> str:
    return line.partition(":")[0].strip().lower()


def _to_give(name: str, value: str) -> str:
    return f"--{name} {shlex.quote(value.replace(HIDDEN, '…'))}"


def _changed(parsed: click.Context, left_out: frozenset[str]) -> Iterator[str]:
    """The parameters that the command line gives, and those that it leaves out, as they are spelled."""
    for parameter in parsed.command.params:
        name = parameter.name or ""
        if parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "without":
            yield next((option for option in parameter.opts if option.startswith("--")), parameter.human_readable_name)
    yield from (f"--without {name}" for name in sorted(left_out))
