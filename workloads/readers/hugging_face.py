"""Rows of a dataset of Hugging Face: by name on their hub (``hf:NAME``, ``hf:NAME@SPLIT``), or in a local folder.

The library ``datasets`` is needed; from release 4 on it never runs code that comes with a dataset. The rows have the shape of
one of the JSON formats.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.elements.errors import DatasetError, WorkloadError
from workloads.readers.json_rows import LocatedRow

PREFIX = "hf:"
_DEFAULT_SPLIT = "train"
_LEAST_RELEASE = 4
_SAVED_FILES = ("dataset_dict.json", "state.json")  # what the library's save_to_disk writes


def is_hugging_face(path: Path) -> bool:
    """Whether ``path`` names a dataset of the hub, or a folder."""
    return str(path).startswith(PREFIX) or path.is_dir()


def hugging_face_rows(path: Path) -> Iterator[LocatedRow]:
    """The rows of one split, each with its number. Raises DatasetError, and WorkloadError where the library is missing."""
    library = _library(path)
    try:
        rows = _split(library, path)
        for number, row in enumerate(rows, start=1):
            yield f"row {number}", row
    except WorkloadError:
        raise
    except Exception as error:  # the library lets errors of many others pass: of the network, of files, of pyarrow
        reason = next(iter(str(error).splitlines()), "")
        raise DatasetError(path, f"cannot be loaded: {type(error).__name__}: {reason}") from error


def _library(path: Path) -> Any:
    try:
        library = importlib.import_module("datasets")
        release = int(str(library.__version__).partition(".")[0])
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkloadError(f"{path}: needs Hugging Face's library: pip install 'datasets>={_LEAST_RELEASE}'") from error
    if release < _LEAST_RELEASE:
        raise WorkloadError(
            f"{path}: datasets {library.__version__} may run code that comes with a dataset: "
            f"pip install 'datasets>={_LEAST_RELEASE}'"
        )
    return library


def _split(library: Any, path: Path) -> Any:
    """The split that is named after ``@``, else ``train`` or the first. The name of a folder may have an ``@``."""
    name, _, split = (str(path), "", "") if path.is_dir() else str(path).removeprefix(PREFIX).partition("@")
    is_saved = any((Path(name) / file).is_file() for file in _SAVED_FILES)
    loaded = library.load_from_disk(name) if is_saved else library.load_dataset(name)
    if not isinstance(loaded, dict):
        if split:
            raise DatasetError(path, f"has no splits, so no {split!r}")
        return loaded
    if split and split not in loaded:
        raise DatasetError(path, f"has no split {split!r}; it has {', '.join(loaded)}")
    return loaded[split or (_DEFAULT_SPLIT if _DEFAULT_SPLIT in loaded else next(iter(loaded)))]
