"""Which tests are tried first on a mutant, and how mutants are dealt to processes."""

from __future__ import annotations

from tools.mutant_trials import function_of, in_order
from tools.mutants import sharded


def test_the_mutants_of_a_function_are_tried_by_one_process() -> None:
    names = [f"reports.a.x_{function}__mutmut_{number}" for function in "bcd" for number in range(3)]
    lists = sharded(names, 2)
    assert sorted([*lists[0], *lists[1]]) == names
    assert [sorted({function_of(name) for name in part}) for part in lists] == [
        ["reports.a.x_b", "reports.a.x_d"],
        ["reports.a.x_c"],
    ]


def test_tests_that_killed_its_neighbours_come_first_then_those_of_the_module_then_the_quickest() -> None:
    durations_s = {
        "tests/reports/gates/test_numbers.py::test_slow": 0.2,
        "tests/reports/gates/test_numbers.py::test_quick": 0.1,
        "tests/reports/test_criteria.py::test_one": 0.05,
        "tests/reports/test_criteria.py::test_killed_another": 0.3,
        "tests/reports/metrics/test_goodput.py::test_one": 0.01,
    }
    killers = ["tests/reports/test_criteria.py::test_killed_another"]
    assert in_order(durations_s, "reports.gates.numbers.x_numbers_of", killers, durations_s) == [
        "tests/reports/test_criteria.py::test_killed_another",
        "tests/reports/gates/test_numbers.py::test_quick",
        "tests/reports/gates/test_numbers.py::test_slow",
        "tests/reports/metrics/test_goodput.py::test_one",
        "tests/reports/test_criteria.py::test_one",
    ]
