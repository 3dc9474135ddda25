"""A run in a process of its own, so that a test can send it signals and limit it.

    python execute_script.py ADDRESS FOLDER WORKERS COUNT GAP_MS ACT [FILE_LIMIT]

COUNT requests, GAP_MS apart, all of one Act. Prints ``ready`` when the workers are about to be started, ``sent N`` as the run
goes on, ``stopping`` after a signal, and at the end the result as one line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict

from bench_records.run_folder import RunFolder
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.errors import RunError
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from tests.harness.scripted_server import Act, scripted
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

SEND_TOKENS = 6
TOKEN_GAP_MS = 20
_TIMEOUT_S = 20.0


def make_plan(
    address: str,
    folder: Path,
    requests: Sequence[Request],
    offsets_ms: Sequence[float],
    workers: int,
    warm_up: Sequence[Request] = (),
) -> RunPlan:
    """A plan that sends ``requests`` at ``offsets_ms`` to the scripted server at ``address``."""
    client = TritonGrpcClient(address, inspect_model(address, "scripted"), streaming=True)
    schedule = Schedule(tuple(requests), tuple(round(ms * 1e6) for ms in offsets_ms), seed=0)
    recorder = Recorder(summarise_schedule(schedule), client)
    return RunPlan(schedule, client, recorder, RunFolder(folder), workers, tuple(warm_up), _TIMEOUT_S)


def main(address: str, folder: Path, workers: int, count: int, gap_ms: int, act: Act) -> None:
    def on_progress(snapshot: Snapshot) -> None:
        print(f"sent {snapshot.sent}", flush=True)
        if snapshot.stopping:
            print("stopping", flush=True)

    requests = [scripted(act, SEND_TOKENS, TOKEN_GAP_MS)] * count
    plan = make_plan(address, folder, requests, [k * gap_ms for k in range(count)], workers)
    print("ready", flush=True)
    try:
        result = Run(plan).execute(on_progress)
    except KeyboardInterrupt:
        print(json.dumps({"raised": "KeyboardInterrupt"}))
    except RunError as error:
        print(json.dumps({"raised": f"RunError: {error}"}))
    else:
        records = [asdict(record) for record in result.records]
        print(json.dumps({"interrupted": result.interrupted, "problem": result.problem, "records": records}))


if __name__ == "__main__":
    if len(sys.argv) > 7:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[7]), resource.RLIM_INFINITY))
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), Act[sys.argv[6]])
