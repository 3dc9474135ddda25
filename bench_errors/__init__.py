"""The root of the errors whose text is for users, and the exit status of each.

BenchError                          1
├── workloads.elements.errors
│   └── WorkloadError               2   a workload cannot be made from these options or files
│       └── DatasetError            2   a dataset file cannot be read
├── harness.errors
│   ├── TargetError                 1   the deployment cannot be reached, or cannot be driven
│   │   └── NoSuchModelError        1   the server has no model of the requested name
│   ├── RunError                    1   the run could not be carried out
│   │   └── WarmUpError             1   every warm-up request failed
│   ├── JournalError                2   a journal is damaged, or of another version
│   └── TokenError                  2   the token of a distributed run cannot be read, or is none
├── bench_records.run_folder
│   └── RunFolderError              2   a run folder cannot be read or written
├── bench_records.step_log
│   └── StepLogFileError            2   the file of --step_log cannot be read, or has no steps of the run
├── harness.calibration.store
│   └── CalibrationFileError        1   a calibration file cannot be read
├── bench_cli.experiments.search_run
│   └── TargetGoneError             1   the target of a search cannot be reached any more
├── reports.errors
│   ├── CheckPerfError              2   --check_perf_json or --check_perf_key cannot be used
│   ├── ConditionError              2   a condition of --fail_if cannot be read
│   ├── MissingLibraryError         1   an optional library is not installed
│   ├── OpStatsError                1   --op_stats_csv cannot be appended to
│   ├── ServerTimesError            2   --server_times has nothing of the run's requests
│   └── NotComparableError          3   the runs measured different work, or one of them is not valid
│       └── NoValidBlockError       3   no block of an experiment is valid
├── simulator.errors
│   └── SimulatorError              2   a run cannot be fitted, or a model cannot be read
└── serving.errors
    └── ServingError                1
        ├── RequestError            1   one request is wrong
        ├── ClientError             1   a running server could not be queried
        ├── EngineError             1   an engine cannot be opened, or failed while it ran
        │   └── StepLogError        2   the file of --step_log cannot be used
        ├── EngineBuildError        1   a checkpoint cannot be turned into an engine
        ├── RepositoryError         1   a model repository cannot be written
        ├── TemplateError           1   a configuration template cannot be filled
        └── LaunchError             1   the server did not start, or did not become ready

Every package may import this one, which imports nothing: the packages' own errors derive from ``BenchError``, and ``bench``
needs one ``except`` for all of them. Errors that never reach a user (a broken exchange, a malformed response) are defined in
the modules that raise them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitStatus(IntEnum):
    """The exit statuses of every verb of ``bench``."""

    VALID = 0
    FAILED = 1  # the target, a request or a gate failed
    USAGE = 2
    INVALID = 3  # the run took place, and its numbers cannot be believed
    INTERRUPTED = 130


class BenchError(Exception):
    """An error whose text is for users: it names the option or file, and the remedy."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.FAILED
