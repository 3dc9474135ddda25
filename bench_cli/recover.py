"""``bench recover``: make the records of a run that was cut short from its journals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus
from reports.render.counts import counted

if TYPE_CHECKING:
    from bench_records.manifest import Recovered
    from bench_records.run_folder import RunFolder
    from harness.recording.schedule_file import RecordingBasis


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench recover``."""

    tokenizer_dir: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        show_default="the run's own",
        help="Hugging Face tokenizer folder, for token counts that the server did not send.",
    )
    worker_journals: tuple[Path, ...] = option(
        (),
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        metavar="DIR",
        help="Folder that 'bench worker' kept on another host, when its master ended; as often as there are hosts.",
    )


@cloup.command(
    name="recover",
    epilog="""\b
Examples:
  bench recover runs/<run>
  bench recover runs/<run> --worker_journals ./from-host-a --worker_journals ./from-host-b""",
)
@cloup.argument("run", type=click.Path(path_type=Path), help="A run's folder.")
@takes(Options)
def command(options: Options, run: Path) -> int:
    """Make the records of a run that was cut short, by a kill or a full disk, from its journals; then report on it.

    Every request of its schedule gets one record: from its journal, or else with the outcome "lost".
    It may be interrupted and run again. Its exit status is that of 'bench report'.
    """
    from bench_cli.measurement.show import show_run
    from bench_cli.outputs import check_name
    from bench_cli.private_files import files_as_private_as
    from bench_cli.signals import signals_as_interrupt
    from bench_records.folder_lock import exclusive_lock
    from bench_records.run_folder import RunFolder, RunFolderError

    check_name("RUN", run)
    folder = RunFolder(run)
    with signals_as_interrupt():
        folder.read_manifest()  # raises for a folder that is no run
        try:
            with exclusive_lock(run), files_as_private_as(run):
                _make_records(folder, options.tokenizer_dir, options.worker_journals)
        except BlockingIOError as error:
            raise RunFolderError(f"{run}: a process of this run is still at work; wait until it has ended") from error
        report = show_run(folder)
    click.echo(f"Report: {folder.html}")
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID


def _make_records(folder: RunFolder, tokenizer_dir: Path | None, worker_journals: tuple[Path, ...]) -> None:
    from msgspec.structs import replace

    from bench_cli.measurement.observe import tabulate
    from bench_records.manifest import RunState
    from bench_records.run_folder import RunFolderError
    from harness.errors import JournalError
    from harness.host.signals import signals_blocked
    from harness.recording.recovery import recover
    from harness.recording.run_lifecycle import delete_journals, finish_run
    from harness.recording.schedule_file import read_basis
    from harness.recording.worker_copies import join_worker_copies

    manifest = folder.read_manifest()
    state = manifest.state
    if state is RunState.NOT_STARTED:
        folder.check_finished(manifest)
    if state is RunState.DONE and worker_journals:
        raise RunFolderError(f"{folder.path} has its records already: its master came to its end, so no journal can be joined")
    if state is RunState.DONE:
        if not folder.journals() and not folder.client_samples():
            raise RunFolderError(f"{folder.path} is whole already; 'bench report {folder.path}' renders it")
        delete_journals(folder)  # its records are written; only the clean-up after them is missing
        tabulate(folder)
        return
    basis = read_basis(folder.schedule)
    if manifest.run_id != basis.run_id:
        raise JournalError(f"{folder.schedule} belongs to another run than {folder.manifest}: copy both from one folder")
    joined = join_worker_copies(folder, basis.run_id, worker_journals)
    if worker_journals:
        click.echo(f"Joined: {', '.join(joined.names) or 'nothing that was not here'}.", err=True)
    for path in joined.left_out:
        click.echo(f"{path} belongs to another run, and was left out.", err=True)
    recovered = recover(folder, basis, _token_counter(basis, tokenizer_dir))
    _print_evidence(recovered.evidence)
    with signals_blocked():
        finish_run(folder, replace(manifest, recovered=recovered.evidence), recovered.result)
        tabulate(folder)


def _print_evidence(evidence: Recovered) -> None:
    click.echo(
        f"Written down in {counted(evidence.journals, 'journal')}: {evidence.written_down} of "
        f"{counted(evidence.scheduled, 'request')}; lost: {evidence.lost}; not sent: {evidence.not_sent}.",
        err=True,
    )
    if evidence.torn_bytes:
        torn = counted(evidence.torn_bytes, "byte of the journals belongs", "bytes of the journals belong")
        click.echo(f"{torn} to records that are torn or damaged.", err=True)


def _token_counter(basis: RecordingBasis, tokenizer_dir: Path | None) -> Callable[[str], int] | None:
    """The run's own counter; its tokenizer is loaded for the first text that needs it, since most runs need none."""
    folder = tokenizer_dir or (None if basis.tokenizer_dir is None else Path(basis.tokenizer_dir))
    if folder is None:
        return None
    loaded: list[Callable[[str], int]] = []

    def count_tokens(text: str) -> int:
        if not loaded:
            loaded.append(_load_counter(folder))
        return loaded[0](text)

    return count_tokens


def _load_counter(tokenizer_dir: Path) -> Callable[[str], int]:
    from bench_cli.tokenizers import token_counter
    from harness.errors import JournalError
    from serving.text.tokenizer import load_tokenizer

    try:
        return token_counter(load_tokenizer(tokenizer_dir))
    except ValueError as error:
        raise JournalError(
            f"the tokenizer that counted this run's tokens cannot be loaded ({error}); name it with --tokenizer_dir"
        ) from error
