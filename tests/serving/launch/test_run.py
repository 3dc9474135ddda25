"""Running plans, with scripts in place of ``mpirun``, ``docker`` and ``sbatch``."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.behind_proxy import with_proxy
from serving.launch.find_tritonserver import FoundTriton
from serving.launch.options import ContainerOptions, Launcher, LaunchOptions, ProcessOptions, Supervision
from serving.launch.plan import LaunchPlan, plan_launch
from serving.launch.run import running, submit
from serving.proxy.settings import ProxyBounds
from tests.processes import is_at_work, words_of
from tests.serving.launch.conftest import make_program

_NOTE_PY = """
import json, os, sys
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps([os.environ.get("TRTLLM_ORCHESTRATOR"), *sys.argv[1:]]) + chr(10))
"""
_NOTE = f"#!/bin/sh\npython3 -c '{_NOTE_PY}' NAME \"$@\"\n"
# runs the first rank's command; the words of later ranks are passed to it
_MPIRUN = _NOTE.replace("NAME", "mpirun") + 'while [ "$1" != "-n" ]; do shift; done; shift 2; exec "$@"\n'
_DOCKER = _NOTE.replace("NAME", "docker") + (
    '[ "$1" = run ] || exit 0\n[ "$2" != --cidfile ] || id_file=$3\n'
    'while [ "$1" != "$IMAGE" ]; do [ "$1 $2" != "--name taken" ] || exit 125; shift; done; shift\n'
    'echo 0123abcd > "$id_file"; exec "$@"\n'
)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of the programs on PATH, one line per call."""
    programs = tmp_path / "bin"
    programs.mkdir()
    make_program(programs, "mpirun", _MPIRUN)
    make_program(programs, "docker", _DOCKER)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("IMAGE", "image:1")
    return tmp_path / "notes"


def _plan(launcher: Launcher, triton: Path, repository: Path, **changes: object) -> LaunchPlan:
    options = LaunchOptions(
        launcher,
        str(repository),
        choose_addresses(),
        log_file=str(repository.parent / "log"),
        supervision=Supervision(ready_timeout_s=120.0),
        processes=ProcessOptions(tritonserver=str(triton)),
    )
    return plan_launch(replace(options, **changes), FoundTriton(str(triton)), ("tensorrt_llm",))  # type: ignore[arg-type]


def _container(name: str) -> ContainerOptions:
    return ContainerOptions(container_image="image:1", container_name=name)


def _family(folder: Path) -> list[psutil.Process]:
    below = psutil.Process().children(recursive=True)
    return [process for process in below if str(folder) in (words := " ".join(words_of(process))) or words.startswith("sleep ")]


def _calls(notes: Path) -> list[list[str]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


def test_tritonserver_is_ready_in_the_block_and_gone_with_its_children_after_it(
    tmp_path: Path, careless_triton: Path, repository: Path
) -> None:
    with running(_plan(Launcher.TRITONSERVER, careless_triton, repository)) as server:
        assert server.is_running()
        family = _family(tmp_path)
        assert len(family) == 3  # supervisor, server, the server's child
    assert [process for process in family if is_at_work(process)] == []


@pytest.mark.parametrize("behind_a_proxy", [False, True])
def test_no_other_program_gets_the_ports_of_a_server_that_starts(
    tmp_path: Path, repository: Path, behind_a_proxy: bool
) -> None:
    never_ready = make_program(tmp_path, "tritonserver", "#!/bin/sh\nexec sleep 1000\n")
    addresses, public = choose_addresses(openai_port=0), choose_addresses()
    plan = replace(_plan(Launcher.TRITONSERVER, never_ready, repository), addresses=addresses)
    ports = {addresses.http_port, addresses.grpc_port, addresses.metrics_port, addresses.openai_port}
    if behind_a_proxy:
        plan = with_proxy(plan, public, ProxyBounds())
        ports = {addresses.http_port, addresses.grpc_port, addresses.metrics_port, public.http_port, public.grpc_port}
    got: set[int | None] = set()

    def look(waited_s: float) -> None:
        for port in ports:
            with suppress(OSError), socket.socket() as other:
                other.bind(("127.0.0.1", port))
                got.add(port)
        raise LaunchError("seen")

    with pytest.raises(LaunchError, match="seen"), running(plan, look):
        pass
    assert got == set()


def test_mpirun_is_run_with_the_plans_arguments_and_environment(notes: Path, fake_triton: Path, repository: Path) -> None:
    processes = ProcessOptions(tritonserver=str(fake_triton), multi_model=True, gpu_count=1)
    plan = _plan(Launcher.MPIRUN, fake_triton, repository, processes=processes)
    with running(plan) as server:
        assert server.is_running()
    [[orchestrator, *called]] = _calls(notes)
    own_prefix = re.compile("(inflight_bench_[0-9]+_)[0-9a-f]{12}_")
    assert (orchestrator, [own_prefix.sub(r"\1", word) for word in called]) == ("1", ["mpirun", *plan.command[1:]])
    assert any(own_prefix.search(word) for word in called)


def test_container_is_removed_when_its_command_has_ended(notes: Path, fake_triton: Path, repository: Path) -> None:
    plan = _plan(Launcher.DOCKER, fake_triton, repository, container=_container("mine"))
    with running(plan) as server:
        assert server.is_running()
    run, remove = _calls(notes)
    assert [*run[:3], *run[5:]] == [None, *plan.command]
    assert run[3] == "--cidfile"
    assert remove == [None, "docker", "rm", "--force", "0123abcd"]
    assert not Path(str(run[4])).parent.exists()


def test_another_container_of_the_same_name_is_not_removed(notes: Path, fake_triton: Path, repository: Path) -> None:
    plan = _plan(Launcher.DOCKER, fake_triton, repository, container=_container("taken"))
    with pytest.raises(LaunchError, match="ended while starting"), running(plan):
        pass
    assert [call[1:3] for call in _calls(notes)] == [["docker", "run"]]


@pytest.mark.parametrize(("launcher", "program"), [(Launcher.MPIRUN, "mpirun"), (Launcher.DOCKER, "docker")])
def test_missing_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_triton: Path, repository: Path, launcher: Launcher, program: str
) -> None:
    plan = replace(_plan(launcher, fake_triton, repository), temporary_dir=str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=f"{program} is not on PATH of this machine; --dry_run"), running(plan):
        pass
    assert not (tmp_path / "temporary").exists()


def test_server_that_fails_shows_its_log_and_leaves_nothing(tmp_path: Path, repository: Path) -> None:
    broken = make_program(tmp_path, "broken", "#!/bin/sh\necho 'E1121 no GPU'\nexit 1\n")
    plan = _plan(Launcher.TRITONSERVER, broken, repository)
    with pytest.raises(LaunchError, match="ended while starting") as caught, running(plan):
        pass
    assert "no GPU" in str(caught.value)
    assert _family(tmp_path) == []


def test_submit_passes_the_script_to_sbatch_and_returns_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "sbatch", '#!/bin/sh\necho "Submitted batch job 7 from $1"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert submit(Path("job.sbatch")) == "Submitted batch job 7 from job.sbatch"


def test_error_output_of_sbatch_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "sbatch", "#!/bin/sh\necho 'sbatch: error: invalid account' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LaunchError, match=r"sbatch refused job\.sbatch: sbatch: error: invalid account"):
        submit(Path("job.sbatch"))


def test_missing_sbatch_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"sbatch is not on PATH of this machine; submit job\.sbatch on a machine with Slurm"):
        submit(Path("job.sbatch"))
