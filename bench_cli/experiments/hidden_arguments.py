"""Options of a series' runs as its plan records them: without the secrets that they contain."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench_cli.measurement.secrets import hide_fields, hide_in_refused_url, hide_in_url, is_reference, is_secret_name
from bench_records.experiment import Experiment
from harness.clients.secret_values import HIDDEN


def without_secrets(experiment: Experiment) -> Experiment:
    """The experiment with HIDDEN in place of the secrets in its runs' options."""
    arms = tuple(replace(arm, options=words_without_secrets(arm.options)) for arm in experiment.arms)
    return replace(experiment, arguments=words_without_secrets(experiment.arguments), arms=arms)


def words_without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Command-line words with the values of options that take a secret hidden, in both forms, ``--x V`` and ``--x=V``."""
    shown: list[str] = []
    hide: Callable[[str], str] | None = None
    for word in arguments:
        if hide is not None:
            shown.append(hide(word))
            hide = None
            continue
        option, equals, value = word.partition("=")
        hide = _HIDING.get(option.replace("-", "_"))
        if hide is not None and equals:
            shown.append(f"{option}={hide(value)}")
            hide = None
        else:
            shown.append(word)
    return tuple(shown)


def _hidden_header(line: str) -> str:
    name, _, value = line.partition(":")
    return f"{name}: {HIDDEN}" if is_secret_name(name) and not is_reference(value.strip()) else line


def _hidden_body(text: str) -> str:
    try:
        return json.dumps(hide_fields(json.loads(text)))
    except ValueError:  # the runs refuse it
        return HIDDEN


_HIDING: dict[str, Callable[[str], str]] = {
    "__header": _hidden_header,
    "__extra_body": _hidden_body,
    "__endpoint": hide_in_url,
    "__metrics_url": hide_in_url,
    "__url": hide_in_refused_url,
    "_u": hide_in_refused_url,
}
