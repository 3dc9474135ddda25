"""The folder of a run from the command line, opened at --run_dir."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from bench_cli.outputs import check_name
from bench_cli.private_files import private_files
from bench_records.manifest import RunState
from bench_records.run_folder import RunFolder, RunFolderError

_OWNERS_ALONE = 0o700


@contextmanager
def open_run_folder(verb: str, run_dir: Path | None, shared: bool) -> Iterator[RunFolder]:
    """A new folder for the run; removed again if it stays empty, because nothing could be started.

    It and its files are the user's alone unless ``shared``.
    """
    place = default_folder(verb) if run_dir is None else nullcontext(run_dir)
    with private_files(shared), place as path, _opened(path) as folder:
        if not shared:
            folder.path.chmod(_OWNERS_ALONE)  # one that existed
        yield folder


@contextmanager
def default_folder(verb: str) -> Iterator[Path]:
    """``runs/<time>-<verb>``, a new folder; it and ``runs`` are removed again where they stay empty."""
    path = _new_default_folder(verb)
    made = RunFolder(path).identity
    try:
        yield path
    finally:
        is_own = RunFolder(path).identity == made  # or another is in its place
        for folder in (path, path.parent) if is_own else (path.parent,):
            with suppress(OSError):  # it is not empty, or is gone
                folder.rmdir()


@contextmanager
def _opened(path: Path) -> Iterator[RunFolder]:
    replaced = None
    check_name("--run_dir", path)
    with ExitStack() as stack:
        try:
            if path.is_dir() and _is_unstarted(RunFolder(path)):
                click.echo(f"Replaces the run in {path}, which ended before its first request.", err=True)
                replaced = Path(stack.enter_context(TemporaryDirectory()))
                _move(path, replaced)
            if path.exists() and any(path.iterdir()):
                raise click.BadParameter(f"{path} is not empty; name a new folder", param_hint="--run_dir")
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_writable(path, error, "--run_dir") from error
        folder = RunFolder(path)
        opened = folder.identity
        try:
            yield folder
        finally:  # another folder may be in its place by now
            if path.is_dir() and folder.identity == opened and not any(path.iterdir()):
                if replaced is None:
                    path.rmdir()
                else:
                    _move(replaced, path)  # the earlier run's log says why it failed, and this one has left nothing that could


def _move(source: Path, target: Path) -> None:
    for file in [*source.iterdir()]:
        shutil.move(file, target)


def _is_unstarted(folder: RunFolder) -> bool:
    """Whether the folder has a run that sent no request, as after a warm-up that failed, and nothing else."""
    if not folder.manifest.exists() or not {*folder.path.iterdir()} <= {folder.manifest, folder.server_log}:
        return False
    try:
        return folder.read_manifest().state is RunState.NOT_STARTED
    except RunFolderError:
        return False


def _new_default_folder(verb: str) -> Path:
    """``runs/<time>-<verb>``, numbered where another run started in the same second."""
    stem = f"{datetime.now():%Y-%m-%d-%H%M%S}-{verb}"
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 1000))):
        try:
            (Path("runs") / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise not_writable(Path("runs") / name, error, "--run_dir") from error
        return Path("runs") / name
    raise click.BadParameter("too many runs started in this second; name a folder", param_hint="--run_dir")


def not_writable(path: Path, error: OSError, option: str) -> click.BadParameter:
    """What to say of a folder, named by ``option``, that cannot be made."""
    return click.BadParameter(
        f"{path} cannot be made ({error.strerror}); name a folder that you may write to", param_hint=option
    )
