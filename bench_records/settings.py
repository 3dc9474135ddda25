"""``settings.json``: the settings whose capacities are searched in turns and ranked, and their folders. Writer and reader.

Each setting has the folder of a search within this one, which knows what is measured of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from bench_records.run_folder import NamedFile, is_directly_within, read_plan
from bench_records.search import SearchFolder
from bench_records.whole_file import write_json

SETTINGS_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PlannedSetting:
    """One setting: its name, its options beside those that all share, without secrets, and the name of its search's folder."""

    name: str
    options: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class PlannedRanking:
    """At least two settings. Their brackets are to be right together with probability ``confidence``; all searches together
    may take ``budget_s``, None without a bound.
    """

    settings: tuple[PlannedSetting, ...]
    confidence: float
    budget_s: float | None


@dataclass(frozen=True, slots=True)
class RankingFolder:
    """The folder of several settings' searches."""

    path: Path

    plan = NamedFile("settings.json")

    def search_folder(self, setting: PlannedSetting) -> SearchFolder:
        return SearchFolder(self.path / setting.folder)

    def write(self, ranking: PlannedRanking) -> None:
        """Write ``settings.json`` whole or not at all."""
        write_json({"schema": SETTINGS_SCHEMA, **asdict(ranking)}, self.plan)

    def read(self) -> PlannedRanking:
        """Read ``settings.json``. Raises RunFolderError when it is absent, damaged or of another schema."""
        return read_plan(self.plan, SETTINGS_SCHEMA, _ranking, "search for the capacities of settings")


def _ranking(document: object) -> PlannedRanking:
    ranking = msgspec.convert(document, PlannedRanking)
    if len(ranking.settings) < 2:
        raise ValueError("it names fewer than two settings")
    for setting in ranking.settings:
        if not is_directly_within(setting.folder):
            raise ValueError(f"the folder of setting {setting.name!r} lies elsewhere")
    return ranking
