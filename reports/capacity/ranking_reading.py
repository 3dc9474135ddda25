"""The recorded searches of several settings as their ranking."""

from __future__ import annotations

from collections.abc import Sequence

from bench_records.settings import PlannedRanking, RankingFolder
from reports.capacity.ranking import Ranking, Setting
from reports.capacity.reading import read_capacity
from reports.capacity.result import Capacity


def read_ranking(folder: RankingFolder) -> Ranking:
    """The ranking of the settings, by the probes that are recorded so far. Raises RunFolderError."""
    planned = folder.read()
    return ranking_of(planned, [read_capacity(folder.search_folder(setting)) for setting in planned.settings])


def ranking_of(planned: PlannedRanking, found: Sequence[Capacity]) -> Ranking:
    """The ranking of the settings with the capacities ``found``, in their order."""
    settings = (
        Setting(setting.name, capacity, setting.folder) for setting, capacity in zip(planned.settings, found, strict=True)
    )
    return Ranking(tuple(settings), planned.confidence, planned.budget_s)
