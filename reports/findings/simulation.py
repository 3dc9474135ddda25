"""Findings about a run that was simulated, and not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reports.findings.finding import Finding, RunFacts, Severity


@dataclass(frozen=True)
class Simulated(Finding):
    """``model`` is the name of the model's file, ``fitted_to`` the runs that it was fitted to; ``router`` is None where it
    has nothing to choose. ``servers`` are the replicas by their kinds, in words.
    """

    model: str
    fitted_to: list[str]
    replicas: int
    router: str | None
    draws: int
    servers: str

    code = "simulated"
    severities = (Severity.WARNING,)
    when = "the run was made by `bench simulate run`, so its numbers are those of a model"
    advices = (
        "Each number is as wrong as the model: 'bench simulate validate' with runs that were not fitted says how wrong. "
        "Measure before you rely on it.",
    )
    briefs = ("Simulated, no server was measured: see bench simulate validate",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = facts.manifest.simulation
        if found is None:
            return None
        replicas = (found.replicas, found.router, found.draws, found.words_of_replicas)
        return cls(found.model, list(found.fitted_to), *replicas)

    def _sentence(self) -> str:
        router = "" if self.router is None else f" with a router ({self.router})"
        return f"No server was measured: {self.model}, fitted to {', '.join(self.fitted_to)}, simulated {self.servers}{router}."


@dataclass(frozen=True)
class DoubtfulModel(Finding):
    """``doubts`` are those of the model's fit, a sentence each without its full stop."""

    doubts: list[str]

    code = "doubtful_model"
    severities = (Severity.WARNING,)
    when = "a simulated run's model was called unfit by its fit, or was fitted to runs with findings that make them doubtful"
    advices = (
        "The simulated numbers may have that error, too, and their ranges need not show it. Fit runs without such findings, "
        "and do not predict with a model that is unfit.",
    )
    briefs = ("The model is in doubt: fit runs without findings, use no unfit model",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = facts.manifest.simulation
        return cls(list(found.doubts)) if found is not None and found.doubts else None

    def _sentence(self) -> str:
        return f"The model of this run is in doubt: {'; '.join(self.doubts)}."


@dataclass(frozen=True)
class BeyondModel(Finding):
    """``beyond`` is what the run holds more of than the fitted runs, a phrase each."""

    beyond: list[str]

    code = "beyond_model"
    severities = (Severity.WARNING,)
    when = (
        "a simulated run has over 5 % more requests in flight, requests or output tokens a second (of a replica), or longer "
        "requests, than the fitted runs"
    )
    advices = ("The model is extrapolated, and how wrong it is there is not known: fit it to runs that reach as far.",)
    briefs = ("Beyond what the model was fitted to: fit runs that reach as far",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        found = facts.manifest.simulation
        return cls(list(found.beyond)) if found is not None and found.beyond else None

    def _sentence(self) -> str:
        return f"The run lies beyond what the model was fitted to: {'; '.join(self.beyond)}."
