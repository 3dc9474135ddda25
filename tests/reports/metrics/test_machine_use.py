"""What other programs used of the machine that client and target share."""

from __future__ import annotations

import pytest

from bench_records.manifest import MachineUse as MeasuredUse
from bench_records.manifest import Manifest
from reports.metrics.machine_use import MachineUse, machine_use


def _found(busy_cores: float, seconds: float = 10.0) -> MachineUse | None:
    """On 8 cores, of which the client used 2 and the target 3."""
    return machine_use(
        Manifest(machine_use=MeasuredUse(cores=8, seconds=seconds, busy_cores=busy_cores, client_cores=2.0, target_cores=3.0))
    )


def test_others_used_what_neither_the_client_nor_the_target_did() -> None:
    found = _found(busy_cores=6.0)
    assert found == MachineUse(8, 2.0, 3.0, 1.0)
    assert found.others_share == 0.125
    assert machine_use(Manifest()) is None


@pytest.mark.parametrize(("busy_cores", "others_cores"), [(5.5, 0.5), (5.0, 0.0), (4.0, 0.0), (3.9, None), (0.0, None)])
def test_a_sum_over_all_processes_that_lacks_more_than_a_fifth_of_two_of_them_is_no_measurement(
    busy_cores: float, others_cores: float | None
) -> None:
    """It must hold 4 of the 5 cores of client and target."""
    found = _found(busy_cores)
    assert (None if found is None else found.others_cores) == others_cores


@pytest.mark.parametrize(("seconds", "is_known"), [(1.0, True), (0.99, False)])
def test_a_second_is_long_enough(seconds: float, is_known: bool) -> None:
    assert (_found(7.0, seconds) is not None) is is_known
