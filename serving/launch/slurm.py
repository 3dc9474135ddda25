"""The batch script that starts a server under Slurm: headers for ``sbatch``, and one ``srun`` for all ranks.

Source: upstream's Slurm recipes, which give every rank the same command; here ranks above 0 load only the engine's models, as
under ``mpirun``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.launch.admin_key import KEY_VARIABLE
from serving.launch.tritonserver import TritonServer, rank_command

_RANK = "${SLURM_PROCID}"
_NEW_KEY = """\
# the key of Triton's restricted protocols, for this job alone
export TRITON_ADMIN_KEY="$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')"
(umask 077; echo "$TRITON_ADMIN_KEY" > "$SLURM_JOB_NAME-$SLURM_JOB_ID.key")"""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Resources and headers of a job. None leaves Slurm's default; ``time`` is in Slurm's format (``1:30:00``, minutes, …)."""

    nodes: int
    tasks_per_node: int
    job_name: str = "tritonserver"
    time: str | None = None
    account: str | None = None
    partition: str | None = None
    mpi: str = "pmix"
    container_image: str | None = None
    container_mounts: tuple[str, ...] = ()
    output: str | None = None

    @property
    def tasks(self) -> int:
        return self.nodes * self.tasks_per_node


def sbatch_script(job: SlurmJob, server: TritonServer, environment: Mapping[str, str]) -> str:
    """The complete script for ``sbatch``."""
    headers = [
        ("job-name", job.job_name),
        ("nodes", job.nodes),
        ("ntasks", job.tasks),
        ("ntasks-per-node", job.tasks_per_node),
        ("time", job.time),
        ("account", job.account),
        ("partition", job.partition),
        ("output", job.output),
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in headers if value is not None), "", "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if server.addresses.restricted_apis:
        lines.append(_NEW_KEY)
    lines += ["", "# one task is one rank; rank 0 serves", " ".join(map(shlex.quote, srun_command(job, server)))]
    return "\n".join(lines) + "\n"


def srun_command(job: SlurmJob, server: TritonServer) -> tuple[str, ...]:
    """``srun`` of a shell command that reads its rank from ``SLURM_PROCID``."""
    return (
        *("srun", f"--mpi={job.mpi}", f"--nodes={job.nodes}"),
        *(f"--ntasks={job.tasks}", f"--ntasks-per-node={job.tasks_per_node}"),
        *([f"--container-image={job.container_image}"] if job.container_image else []),
        *([f"--container-mounts={','.join(job.container_mounts)}"] if job.container_mounts else []),
        *("bash", "-c", _rank_script(server, job.tasks)),
    )


def _rank_script(server: TritonServer, tasks: int) -> str:
    first = _shell_words(rank_command(server, 0, _RANK))
    if tasks == 1 or server.llmapi_launch:  # trtllm-llmapi-launch turns the ranks above 0 into workers
        return f"exec {first}"
    others = _shell_words(rank_command(server, 1, _RANK))
    return f'if [ "$SLURM_PROCID" -eq 0 ]; then exec {first}; else exec {others}; fi'


def _shell_words(command: Sequence[str]) -> str:
    return " ".join(f'"{word}"' if _RANK in word or KEY_VARIABLE in word else shlex.quote(word) for word in command)
