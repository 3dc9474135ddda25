"""Messages of an answer are cut, doubled, swapped or changed: nothing is counted twice, and what is detectable is reported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench_records.manifest import DrawnSchedule, Manifest
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from harness.run.coordinator import Run
from harness.run.live_statistics import Snapshot
from reports.findings.finding import Finding
from reports.run_report import read_run
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted

_TOKENS = 4

# What comes of each, and the tokens that are counted. Order within an answer is nothing that a count or a time depends on.
_EXPECTED = {
    Act.ANSWER: (Outcome.DONE, _TOKENS),
    Act.SWAPPED: (Outcome.DONE, _TOKENS),
    Act.DOUBLED: (Outcome.DONE, 2 * _TOKENS - 1),  # more than was requested, which is a finding
    Act.DOUBLED_LAST: (Outcome.MALFORMED, None),
    Act.SWAPPED_LAST: (Outcome.MALFORMED, None),
    Act.FOREIGN: (Outcome.MALFORMED, None),
    Act.CUT_BODY: (Outcome.MALFORMED, None),
    Act.WIDE: (Outcome.MALFORMED, None),
}


def _quiet(snapshot: Snapshot) -> None:
    pass


def test_each_disturbance_is_recorded_as_far_as_it_is_detectable(tmp_path: Path, server: ScriptedServer) -> None:
    acts = list(_EXPECTED) * 5
    plan = make_plan(server.address, tmp_path, [scripted(act, _TOKENS, 5) for act in acts], range(len(acts)), workers=2)
    records = Run(plan).execute(_quiet).records
    assert [record.index for record in records] == list(range(len(acts)))
    for act, record in zip(acts, records, strict=True):
        assert (act, record.outcome, record.output_tokens) == (act, *_EXPECTED[act]), record.error
        assert (record.error is None) == (record.outcome is Outcome.DONE)
        assert len(record.token_times_ns) == (record.output_tokens or 0)
    assert Counter(record.outcome for record in records)[Outcome.MALFORMED] == 25


def _finding(folder: Path, server: ScriptedServer, act: Act) -> Finding | None:
    plan = make_plan(server.address, folder, [scripted(act, _TOKENS)] * 20, range(20), workers=1)
    write_table(Run(plan).execute(_quiet).records, plan.folder.requests)
    plan.folder.write_manifest(Manifest(schedule=DrawnSchedule(digest=plan.schedule.digest, seed=1)))
    found = [finding for finding in read_run(RunFolder(folder)).findings if finding.code == "output_longer_than_asked"]
    return found[0] if found else None


@pytest.mark.parametrize("act", [Act.DOUBLED, Act.ANSWER])
def test_run_whose_tokens_came_twice_is_not_valid(tmp_path: Path, server: ScriptedServer, act: Act) -> None:
    finding = _finding(tmp_path, server, act)
    assert (None if finding is None else finding.severity.value) == ("invalid" if act is Act.DOUBLED else None)
    if finding is not None:
        assert (finding.evidence["requests"], finding.evidence["tokens_beyond"]) == (20, 60)
