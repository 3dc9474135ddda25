"""What runs sent that differs, request by request, where their schedules have other digests.

Prompts are not recorded, so that requests are compared by their times, lengths and settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_records.manifest import LoadFacts, Manifest
from bench_records.run_folder import RunFolder
from reports.render.counts import counted
from reports.run_report import RunReport

_TIMES = ("scheduled_ns", "parent", "planned_ns")
_SETTINGS = {
    "have a prompt of another length": ("requested_input_tokens",),
    "have another output length": ("requested_output_tokens", "ignore_eos"),
    "belong to another conversation or class": ("session", "traffic_class"),
    "are cancelled differently": ("cancel_after_ns", "cancel_after_tokens"),
}
_DUE = "were due at another time"
_IN_THE_SCHEDULE = ("mode", "max_concurrency", "concurrency", "duration_s", "ramp_up_s")  # of the load, beside the requests

_OF_A_SINGLE_ONE = {"have": "has", "belong": "belongs", "are": "is", "were": "was"}


@dataclass(frozen=True, slots=True)
class SentDifferences:
    """``common`` requests have one number in both runs. ``differing`` counts those of them that differ, by what differs in
    words; ``first`` is the lowest number among these. ``missing`` counts those that only the first run has,
    ``new`` those that only the second has. ``same`` names what was compared, ``rest`` says what differs where that does not.
    """

    common: int
    differing: Mapping[str, int]
    first: int | None
    missing: int
    new: int
    same: str
    rest: str

    def __str__(self) -> str:
        """One sentence for people."""
        common = counted(self.common, "request is", "requests are")
        counts = [_counted_that(what, count) for what, count in self.differing.items() if count]
        if counts:
            text = f"{common} in both runs, and {', '.join(counts)}; the first is request {self.first}"
        else:
            text = f"{common} in both runs, with the same {self.same}"
            text += "" if self.missing or self.new else f", {self.rest}"
        others = [_counted_that(what, n) for n, what in ((self.missing, "are not sent any more"), (self.new, "are new")) if n]
        return f"{text}; {' and '.join(others)}." if others else f"{text}."


def _counted_that(what: str, count: int) -> str:
    """``count`` before ``what``, which begins with its verb."""
    verb, rest = what.split(" ", 1)
    return f"{counted(count, _OF_A_SINGLE_ONE[verb], verb)} {rest}"


def sent_differences(a: RunFolder, b: RunFolder, loads: tuple[LoadFacts, LoadFacts]) -> SentDifferences:
    """The requests of ``a`` against those of ``b``, whose schedules differ; ``loads`` are those of both. In a closed loop
    answers decide when a request is due, and times are not compared. Raises RunFolderError where one has no records.
    """
    by_the_clock = all(load.mode != "closed" for load in loads)
    sides = [_by_number(folder, by_the_clock) for folder in (a, b)]
    common = sorted(sides[0].keys() & sides[1].keys())
    aspects = (*((_DUE,) if by_the_clock else ()), *_SETTINGS)
    counts = dict.fromkeys(aspects, 0)
    first = None
    for number in common:
        for what, before, now in zip(aspects, sides[0][number], sides[1][number], strict=True):
            if before != now:
                counts[what] += 1
                first = number if first is None else first
    others = (len(sides[0]) - len(common), len(sides[1]) - len(common))
    same = "times and lengths" if by_the_clock else "lengths"
    return SentDifferences(len(common), counts, first, *others, same, _rest(*loads))


def _rest(a: LoadFacts, b: LoadFacts) -> str:
    """What differs between schedules whose requests have the same times, lengths and settings."""
    if any(getattr(a, fact) != getattr(b, fact) for fact in _IN_THE_SCHEDULE):
        return "and the load is another one"
    if a.mode == "sessions":  # neither think times nor the history of a conversation are in the records
        return "so their prompts differ, or when later turns are due"
    return "so their prompts differ"


def why_other_requests(a: Sequence[RunReport], b: Sequence[RunReport]) -> str:
    """What differs between the requests of two sides whose seeds are equal, and the likely reason. Raises RunFolderError."""
    pairs = ((run, other) for run in a for other in b if run.schedule.seed == other.schedule.seed)
    run, other = next((run, other) for run, other in pairs if run.schedule.digest != other.schedule.digest)
    seed, manifests = run.schedule.seed, (run.manifest, other.manifest)
    loads = (run.manifest.load or LoadFacts(), other.manifest.load or LoadFacts())
    found = sent_differences(run.folder, other.folder, loads)
    drawn = "Neither side has a seed:" if seed is None else f"Both sides have the same seeds. With seed {seed},"
    return " ".join([f"{drawn} {found}", *_reason(*manifests), "Part of the difference may come from here."])


def _reason(a: Manifest, b: Manifest) -> list[str]:
    """Why one seed made other requests, where the manifests show it."""
    if a.target.token_ids != b.target.token_ids:
        return ["One side sends text, the other token ids."]
    if a.target.protocol != b.target.protocol:
        return [f"A prompt of {a.target.protocol} has other bytes than one of {b.target.protocol}."]
    if a.bench_version != b.bench_version:
        return ["Another release may draw other requests from a seed: measure both sides with one."]
    return []


def _by_number(folder: RunFolder, by_the_clock: bool) -> dict[int, tuple[object, ...]]:
    """What is compared of each request, by its number in the schedule."""
    table = folder.read_requests(["index", *_TIMES, *(column for columns in _SETTINGS.values() for column in columns)])
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    aspects = [list(zip(*(columns[name] for name in names), strict=True)) for names in _SETTINGS.values()]
    if by_the_clock:  # a later turn of a session is due after an answer, unless it has a time of its own
        times = zip(*(columns[name] for name in _TIMES), strict=True)
        aspects.insert(0, [(due, None) if parent is None else (planned, parent) for due, parent, planned in times])
    return dict(zip(columns["index"], zip(*aspects, strict=True), strict=True))
