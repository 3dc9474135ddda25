"""The tables and sentences of a comparison, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence

from reports.compare.comparable import one_start
from reports.compare.comparison import MIXED, STARTS_MIXED, Arm, ArmComparison, Comparison, overall
from reports.compare.conditions import Condition, ConditionResult
from reports.compare.difference import Difference, Verdict
from reports.compare.looks import DECIDING_SHARE, FIRST_LOOK, Looks
from reports.compare.measures import Measure
from reports.compare.recommendation import preferred
from reports.compare.spread import CONFIDENCE
from reports.render.counts import counted, decimals_that_show, percent
from reports.render.document import Code, Notes
from reports.render.tables import UNKNOWN, Cell, Quantity, Table
from reports.statistics.estimate import reason_text, two_decimals

DIFFERENCE_COLUMNS = ("measure", "A", "B", "B − A", "change", "95 % interval", "p (Holm)", "could have shown", "verdict")
_SIDES = f"l{'r' * 7}l"
LARGEST_SHARE = 10.0
_FEWEST_DECIMALS, _MOST_DECIMALS = 3, 6  # of a probability
SETTINGS = "Differences in the settings, A | B"
_REPEATS = 5  # the default of bench experiment
_EXPERIMENT = f"'bench experiment --repeats {_REPEATS}'"


def difference_table(comparison: ArmComparison, name: str = "differences") -> Table:
    """One row for each measure. Changes of a relative measure are per cent of A, else percentage points."""
    return Table(
        name,
        "Differences",
        DIFFERENCE_COLUMNS,
        tuple(difference_row(difference) for difference in comparison.differences),
        "Latencies count from the schedule. Each interval covers its measure alone; p and verdict cover all measures "
        "together (Holm). "
        '"Could have shown" is the smallest change that these runs would have detected in four of five cases. With one run '
        "on each side, the change of a latency is at equal lengths: without what the requested lengths explain.",
        sides=_SIDES,
    )


def conditions_table(results: Sequence[ConditionResult], name: str = "conditions") -> Table:
    """One row for each condition, of --slo or --fail_if."""
    rows = tuple((r.condition.text, r.status.value, r.why) for r in results)
    return Table(name, "Conditions", ("condition", "result", "why"), rows)


def conditions_notes(results: Sequence[ConditionResult]) -> Notes:
    """The same as lines."""
    return Notes(tuple((f"{r.status.value}: ", Code(r.condition.text), f": {r.why}") for r in results))


def headline(comparison: ArmComparison) -> str:
    """The verdict in one sentence, with the changes that it rests on."""
    if comparison.looks is not None:
        return " ".join([_after_looks(comparison, comparison.looks), *_failed_alone(comparison)])
    if comparison.inconclusive:
        return " ".join([_inconclusive(comparison), *_failed_alone(comparison)])
    sentence = summary_sentence(comparison.arm.name, comparison.baseline.name, comparison.differences)
    if not any(d.verdict.differs for d in comparison.differences):
        return " ".join([sentence, *_failed_alone(comparison)])
    if not comparison.single_runs or comparison.simulated:
        return sentence
    return f"{sentence[:-1]}; whether every start would be, {_EXPERIMENT} would show{_duration(comparison)}."


def _after_looks(comparison: ArmComparison, looks: Looks) -> str:
    """The verdict of an experiment that ends when it is decided, and after how many blocks."""
    sentence = summary_sentence(comparison.arm.name, comparison.baseline.name, comparison.differences)
    decides, blocks = comparison.deciding, f"after {len(comparison.arm.runs)} of at most {looks.most} blocks"
    if decides is None or decides.verdict.differs:
        return f"{sentence[:-1]}, {blocks}."
    change = f"{decides.measure.title} {change_text(decides.measure, decides.change)} ({interval_text(decides)})"
    return f"{sentence[:-1]}, {blocks}; what decides is {change}."


def _inconclusive(comparison: ArmComparison) -> str:
    """What these runs cannot show, what would show more, and the measures that look changed."""
    suspects = "; ".join(
        f"{d.measure.title} {change_text(d.measure, d.change)} ({interval_text(d)})" for d in comparison.suspects[:3]
    )
    named = f" Suspects, each judged alone: {suspects}." if suspects else ""
    judged = preferred(comparison.differences)
    if judged is None:
        return f"Inconclusive: no latency of these runs has an interval.{named}"
    smallest = judged.smallest_shown
    below = "" if smallest is None else f" below {min(smallest, LARGEST_SHARE):,.0%}"
    sentence = f"Inconclusive: {_runs_of_sides(comparison)} cannot show a change of {judged.measure.title}{below}"
    better = comparison.affordable
    if better is not None and (smallest is None or better.change < smallest):
        of_requests = f" of about {better.requests:,} requests" if comparison.single_runs else ""
        sentence += f"; {better.repeats}{of_requests} would show {better.change:.0%}"
    if comparison.schedules_apart:
        sentence += "; repeats of the same schedules on both sides would show smaller ones"
    return f"{sentence}.{named}"


def _runs_of_sides(comparison: ArmComparison) -> str:
    a, b = len(comparison.baseline.runs), len(comparison.arm.runs)
    return f"{runs_text(comparison.arm)} of each side" if a == b else f"{a} and {b} runs"


def _failed_alone(comparison: ArmComparison) -> list[str]:
    """The conditions that failed although all measures together show no difference: named beforehand, each is judged alone."""
    shown = [d.measure for d in comparison.differences if d.verdict.differs]
    return [
        f"{r.condition.measure.title}, which --fail_if names, {r.change} when judged alone."
        for r in comparison.conditions
        if r.failed and isinstance(r.condition, Condition) and r.condition.measure not in shown
    ]


def summary_sentence(name: str, baseline: str, differences: Sequence[Difference]) -> str:
    """The verdict on ``name`` against ``baseline`` in one sentence, with the changes that it rests on."""
    shown = [d for d in differences if d.verdict.differs]
    if not shown:
        return (
            f"No difference between {name} and {baseline} is shown by these runs."
            if overall(differences) == Verdict.NONE
            else f"These runs do not show whether {name} differs from {baseline}."
        )
    parts = "; ".join(f"{d.measure.title} {change_text(d.measure, d.change)} ({interval_text(d)})" for d in shown)
    verdict = overall(differences)
    if verdict in (MIXED, STARTS_MIXED):
        comparative = "better in some and worse in others than"
    else:
        comparative = "better than" if shown[0].verdict.is_better else "worse than"
    starts = "" if verdict in (MIXED, Verdict.BETTER, Verdict.WORSE) else "Between these starts, "
    return f"{starts}{name} is {comparative} {baseline}: {parts}."


def judged_apart(comparison: Comparison) -> str:
    """What several comparisons cost, each of which is judged by itself, in one sentence; "" for one."""
    count = len(comparison.comparisons)
    if count == 1:
        return ""
    share = f"{min(1.0, count * (1.0 - CONFIDENCE)):.0%}"
    return f"Each of {count} arms is judged by itself: if all equal A, one is called different in up to {share} of cases."


def notes(comparison: ArmComparison) -> list[str]:
    """Notes on the table: differences of paired requests, blocks left out, and variation that the intervals lack."""
    a, b, texts = comparison.baseline, comparison.arm, [*_judged_alone(comparison), *_of_starts(comparison)]
    texts += _at_equal_lengths(comparison.differences)
    if comparison.pairs is not None:
        d = comparison.pairs.difference_ms
        interval = d.percentile(0.50).interval_text
        texts.append(
            f"Request by request ({d.n:,} pairs of one schedule): B − A in {a.latency.label} is {d.p50:+.2f} ms in the median "
            f"(95 %: {interval}); {percent(comparison.pairs.share_slower)} of the requests were slower in B."
        )
    if comparison.looks is not None and len(b.runs) >= FIRST_LOOK:
        decides = comparison.deciding
        named = "" if decides is None else f" {decides.measure.title} decides, and has {DECIDING_SHARE:.0%} of the 5 %."
        texts.append(f"Intervals and p are paid for the looks after each block: they hold whenever the experiment ends.{named}")
    if b.blocks_left_out:
        blocks = "1 block is" if b.blocks_left_out == 1 else f"{b.blocks_left_out} blocks are"
        texts.append(f"{blocks} left out because a run is missing, did not come to its end, or is invalid; see its report.")
    texts += [_failed_runs(name, arm) for name, arm in (("A", a), ("B", b)) if arm.failed]
    if comparison.schedules_apart:
        texts.append(
            "Each side repeats schedules of its own, so the intervals include what one schedule differs from another, as far "
            "as these runs show it. The same seeds on both sides, drawn by one release (--seed), show smaller changes."
        )
    if comparison.single_runs and comparison.simulated:
        texts.append("One simulation each: repeats of both with other seeds (--seed) show what the schedule changes.")
    elif comparison.single_runs:
        texts.append(
            f"One run each: the intervals lack the variation between starts. Use {_EXPERIMENT}"
            f"{_duration(comparison)}, or repeat the runs."
        )
    if comparison.recommendation is not None:
        texts.append(comparison.recommendation.text)
    return texts


def _failed_runs(name: str, arm: Arm) -> str:
    left_out = counted(len(arm.failed), f"run of {name} that is", f"runs of {name} that are")
    return f"In {left_out} left out, too many requests failed; the table does not cover that."


def _judged_alone(comparison: ArmComparison) -> list[str]:
    """Why a measure whose interval leaves out equality has no verdict; an inconclusive headline names such measures itself."""
    if comparison.inconclusive or not comparison.suspects:
        return []
    names = ", ".join(d.measure.title for d in comparison.suspects)
    judged = sum(d.p_value is not None for d in comparison.differences)
    return [
        f"Differs only when judged alone: {names}. Among {judged} measures, one often does by chance, so it has no verdict."
    ]


def _at_equal_lengths(differences: Sequence[Difference]) -> list[str]:
    """Why a change is not the ratio of the two columns beside it, where a reader can see that."""
    adjusted = [
        d.measure.title
        for d in differences
        if d.measure.relative and d.a and d.b is not None and d.change is not None
        if change_text(d.measure, d.b / d.a - 1.0) != change_text(d.measure, d.change)
    ]
    if not adjusted:
        return []
    one, other = ("change", "is") if len(adjusted) == 1 else ("changes", "are")
    return [
        f"At equal lengths: the {one} of {', '.join(adjusted)} {other} without what the requested lengths explain, and not "
        "the plain ratio of the two columns."
    ]


def _of_starts(comparison: ArmComparison) -> list[str]:
    """Which starts of a server the verdict is about, where the repeats of a side are known to come from one alone."""
    a, b = comparison.baseline.runs, comparison.arm.runs
    sides = [name for name, runs in (("A", a), ("B", b)) if len(runs) > 1 and one_start(runs)]
    if not sides:
        return []
    if one_start((*a, *b)):
        return ["All runs come from one start of one server, so this verdict is about that start alone."]
    both = len(sides) == len("AB")
    repeats = "All repeats of each side" if both else f"All repeats of {sides[0]}"
    about = "these two starts" if both or min(len(a), len(b)) == 1 else f"that start of {sides[0]}"
    return [f"{repeats} come from one start of its server, so this verdict is about {about}."]


def _duration(comparison: ArmComparison) -> str:
    """How long the sending of an experiment would take, by the length of these runs; nothing where that is unknown."""
    lengths_s = [run.metrics.window_s for run in (*comparison.baseline.runs, *comparison.arm.runs)]
    known_s = [length_s for length_s in lengths_s if length_s is not None]
    if len(known_s) < len(lengths_s):
        return ""
    sending_s = _REPEATS * sum(known_s)
    length = f"{sending_s / 60.0:,.0f} min" if sending_s >= 90.0 else f"{sending_s:,.0f} s"
    return f" in about {length} and the time of the starts"


def runs_text(arm: Arm) -> str:
    return "1 run" if len(arm.runs) == 1 else f"{len(arm.runs)} runs"


def change_text(measure: Measure, change: float | None) -> str:
    if change is None:
        return UNKNOWN
    if measure.relative:
        return f"{change:+.1%}" if change < LARGEST_SHARE else f"above {LARGEST_SHARE:+,.0%}"
    return f"{100 * change:+.2f} pp"


def interval_text(difference: Difference) -> str:
    """The interval of the change, or the reason why there is none."""
    if difference.interval is None:
        return reason_text(difference.reason) or UNKNOWN
    low, high = (change_text(difference.measure, bound) for bound in difference.interval)
    return f"{low} to {high}"


def smallest_shown_text(difference: Difference) -> str:
    """The smallest fall and rise that would have been detected; of a ratio they differ: down to a third, up to threefold."""
    rise = difference.smallest_shown
    if rise is None:
        return UNKNOWN
    if not difference.measure.relative:
        return change_text(difference.measure, rise).replace("+", "±", 1)
    return f"{change_text(difference.measure, -rise / (1.0 + rise))} or {change_text(difference.measure, rise)}"


def difference_row(d: Difference) -> tuple[Cell, ...]:
    """One measure under DIFFERENCE_COLUMNS."""
    return (
        f"{d.measure.title}, {d.measure.unit}" if d.measure.relative else f"{d.measure.title}, %",
        _value(d.measure, d.a),
        _value(d.measure, d.b),
        _value(d.measure, d.difference, signed=True),
        _in_percent(d.change, change_text(d.measure, d.change)),
        interval_text(d),
        None if d.p_adjusted is None else Quantity(d.p_adjusted, _probability(d.p_adjusted)),
        _in_percent(d.smallest_shown, smallest_shown_text(d)),
        d.verdict.value,
    )


def _probability(p: float) -> str:
    """Three decimals, or as many more as show on which side of 5 % it is, by which the verdict goes."""
    if p < 0.001:
        return "<0.001"
    level = round(1.0 - CONFIDENCE, _MOST_DECIMALS)
    found = decimals_that_show(p, _FEWEST_DECIMALS, _MOST_DECIMALS, lambda shown: (shown < level) == (p < level))
    return f"{p:.{_FEWEST_DECIMALS if found is None else found}f}"


def _value(measure: Measure, value: float | None, *, signed: bool = False) -> Quantity | None:
    if value is None:
        return None
    shown = value if measure.relative else 100 * value
    return Quantity(shown, f"{'+' if signed and shown >= 0 else ''}{two_decimals(shown)}")


def _in_percent(share: float | None, text: str) -> Quantity | None:
    return None if share is None else Quantity(100 * share, text)
