"""A tree of RAPL's zones as Linux lists them under ``/sys/class/powercap``, for machines that have none."""

from __future__ import annotations

from pathlib import Path

RANGE_UJ = 262_143_328_850


def zone(folder: Path, key: str, name: str, energy_uj: int = 0, range_uj: int = RANGE_UJ) -> Path:
    """The zone ``key``, such as ``intel-rapl:0``, in the tree ``folder``; returns its folder."""
    found = folder / key
    found.mkdir(parents=True)
    (found / "name").write_text(f"{name}\n")
    (found / "max_energy_range_uj").write_text(f"{range_uj}\n")
    count(found, energy_uj)
    return found


def count(zone: Path, energy_uj: int) -> None:
    """Set the zone's counter to ``energy_uj``."""
    (zone / "energy_uj").write_text(f"{energy_uj}\n")


def two_sockets(folder: Path) -> Path:
    """Two packages with cores and DRAM, the platform that contains them, and the same packages over another bus."""
    for socket in range(2):
        zone(folder, f"intel-rapl:{socket}", f"package-{socket}", 1_000_000)
        zone(folder, f"intel-rapl:{socket}:0", "core", 500_000)
        zone(folder, f"intel-rapl:{socket}:1", "dram", 2_000_000)
        zone(folder, f"intel-rapl-mmio:{socket}", f"package-{socket}", 1_000_000)
    zone(folder, "intel-rapl:2", "psys", 9_000_000)
    (folder / "intel-rapl").mkdir()
    return folder
