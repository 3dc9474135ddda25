"""Classes of traffic: models, LoRA adapters or service classes that share a schedule by weight.

The class of a request is drawn independently of all others. So the requests of a class that arrive by a Poisson process are
one themselves (thinning: Kingman 1993, Poisson Processes, section 5.1), as those of independent users are, and the number of
a class's requests is binomial, not exact. A request's class depends on the seed and its number alone: a longer run begins with
the classes of a shorter one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workloads.elements.errors import Field
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import PROBE, Variant
from workloads.elements.spelling import SpeltTexts, number_of, number_text, parse_texts
from workloads.schedule.schedule import AnySchedule, SessionSchedule, session_numbers

_FORMS = "NAME:weight=3,model=MODEL,lora=TASK_ID,slo=ttft<=500ms"
_KEYS = ("weight", "model", "lora", "slo")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MOST_WEIGHT = 1_000_000_000
_MOST_TASK_IDS = 2**63  # the digest and Triton's UINT64 hold them


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """A class: its share of the requests is ``weight`` over the sum of all. ``objectives`` are its own, as text."""

    name: str
    weight: float = 1.0
    variant: Variant | None = None
    objectives: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The spelling that ``parse_class`` reads."""
        variant = self.variant or Variant()
        parts = [f"weight={number_text(self.weight)}"]
        parts += [] if variant.model is None else [f"model={variant.model}"]
        parts += [] if variant.lora_task_id is None else [f"lora={variant.lora_task_id}"]
        return f"{self.name}:{','.join([*parts, *(f'slo={objective}' for objective in self.objectives)])}"


def parse_class(text: str) -> TrafficClass:
    """The class that ``text`` spells; objectives are not read. Raises WorkloadError."""
    spelt = parse_texts(text, "class", _FORMS)
    spelt.check_names(_KEYS)
    if not _NAME.fullmatch(spelt.name):
        raise spelt.error("a name has up to 40 letters, digits, and . _ - after the first")
    if spelt.name == PROBE:
        raise spelt.error(f"{PROBE!r} is the class of ", Field("probe_rate"))
    variant = Variant(spelt.one("model"), _task_id(spelt))
    return TrafficClass(spelt.name, _weight(spelt), None if variant == Variant() else variant, spelt.every("slo"))


def _weight(spelt: SpeltTexts) -> float:
    text = spelt.one("weight")
    weight = 1.0 if text is None else number_of(text) if text[-1:].isdigit() else None
    if not weight or weight > _MOST_WEIGHT:
        raise spelt.error(f"the weight must be a number above 0, at most {_MOST_WEIGHT:,}, not {text}")
    return weight


def _task_id(spelt: SpeltTexts) -> int | None:
    text = spelt.one("lora")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < _MOST_TASK_IDS:  # upstream's clients send 0 for none
        raise spelt.error(f"lora is the task id of an adapter, a whole number above 0, not {text}")
    return int(text)


def with_classes(schedule: AnySchedule, classes: Sequence[TrafficClass], seed: int) -> AnySchedule:
    """``schedule`` with a class for each request, whatever class it had, and one for all turns of a conversation."""
    units = _units(schedule)
    weights = np.cumsum([traffic_class.weight for traffic_class in classes])
    drawn = generator(seed, Stream.TRAFFIC_CLASSES).random(max(units, default=-1) + 1)
    chosen = np.searchsorted(weights / weights[-1], drawn, side="right").tolist()
    requests = []
    for request, unit in zip(schedule.requests, units, strict=True):
        one = classes[chosen[unit]]
        requests.append(replace(request, traffic_class=one.name, variant=one.variant))
    return replace(schedule, requests=tuple(requests))


def _units(schedule: AnySchedule) -> Sequence[int]:
    """The number of the unit of each request: a conversation, or a request that belongs to none."""
    return session_numbers(schedule.requests) if isinstance(schedule, SessionSchedule) else range(len(schedule))
