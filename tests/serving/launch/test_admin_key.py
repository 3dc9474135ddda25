"""The key of Triton's administrative protocols: where it is needed, and where it is written."""

from __future__ import annotations

import pytest

from serving.launch.addresses import ServerAddresses
from serving.launch.admin_key import ADMINISTRATIVE, KEY_VARIABLE, new_key, restricted_apis, restriction_arguments, with_key
from serving.launch.mpirun import mpirun_command
from serving.launch.plan import shell_line
from serving.launch.slurm import SlurmJob, sbatch_script
from serving.launch.tritonserver import TritonServer, rank_command

_OPEN = ServerAddresses("10.0.0.1", 8000, 8001, 8002, ADMINISTRATIVE)
_SERVER = TritonServer("tritonserver", "/repo", _OPEN)
_RESTRICTION = f"model-repository,shared-memory,trace,logging:triton-admin-key={KEY_VARIABLE}"


def test_administration_is_restricted_whatever_else_is_requested() -> None:
    administrative = ("model-repository", "shared-memory", "trace", "logging")
    assert restricted_apis() == administrative
    assert restricted_apis(("statistics", "trace")) == (*administrative, "statistics")


def test_restriction_holds_over_both_protocols_and_in_every_rank() -> None:
    arguments = (f"--http-restricted-api={_RESTRICTION}", f"--grpc-restricted-protocol={_RESTRICTION}")
    assert restriction_arguments(ADMINISTRATIVE) == arguments
    assert restriction_arguments(()) == ()
    for rank in (0, 1):
        assert set(arguments) <= set(rank_command(_SERVER, rank))


def test_key_takes_the_place_of_the_variable_in_a_command_that_has_it() -> None:
    command = mpirun_command(_SERVER, 2)
    keyed = with_key(command, "k3y")
    assert sum("triton-admin-key=k3y" in word for word in keyed) == 4
    assert not any(KEY_VARIABLE in word for word in keyed)
    assert with_key(("tritonserver",), None) == ("tritonserver",)
    with pytest.raises(ValueError, match="needs a key"):
        with_key(command, None)


def test_each_key_is_new_and_fits_in_an_argument() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert len(first) == 32
    assert first.replace("-", "").replace("_", "").isalnum()


def test_a_shell_expands_the_variable_and_stops_without_it() -> None:
    assert f'"--http-restricted-api={_RESTRICTION}"' in shell_line(rank_command(_SERVER, 0), {})
    assert KEY_VARIABLE == "${TRITON_ADMIN_KEY:?}"


def test_slurm_job_makes_its_own_key_and_keeps_it_in_a_file_of_its_owner() -> None:
    script = sbatch_script(SlurmJob(1, 2), _SERVER, {})
    assert "export TRITON_ADMIN_KEY=\"$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')\"" in script
    assert '(umask 077; echo "$TRITON_ADMIN_KEY" > "$SLURM_JOB_NAME-$SLURM_JOB_ID.key")' in script
    assert f'"--http-restricted-api={_RESTRICTION}"' in script
    open_server = TritonServer("tritonserver", "/repo", ServerAddresses("127.0.0.1", 8000, 8001, 8002))
    assert "KEY" not in sbatch_script(SlurmJob(1, 2), open_server, {})
