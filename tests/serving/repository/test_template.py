"""Templates are filled as by upstream's ``fill_template.py``, and mistakes get an error message."""

from __future__ import annotations

import re

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from serving.errors import TemplateError
from serving.repository.ngc_parameters import PARAMETERS
from serving.repository.template import fill_template, parse_substitutions

_KEYS = st.from_regex(r"\A[a-z_][a-z0-9_]{0,12}\Z")
_VALUES = st.text().filter(lambda value: "\\" not in value)


def _escape(value: str) -> str:
    return re.sub("([,:])", r"\\\1", value)


@given(st.dictionaries(_KEYS, _VALUES))
def test_escaped_values_are_read_back(values: dict[str, str]) -> None:
    assert parse_substitutions(",".join(f"{key}:{_escape(value)}" for key, value in values.items())) == values


@given(st.text())
def test_any_text_is_read_or_rejected_with_a_message(text: str) -> None:
    try:
        values = parse_substitutions(text)
    except TemplateError as error:
        assert str(error)  # noqa: PT017
    else:
        assert all(values) or not values


@given(st.dictionaries(_KEYS, _VALUES, min_size=1))
def test_placeholders_are_replaced_and_nothing_else_changes(values: dict[str, str]) -> None:
    template = "".join(f'a {{ b: "${{{key}}}" }}\n' for key in values)
    assert fill_template(template, values).text == "".join(f'a {{ b: "{value}" }}\n' for value in values.values())


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("a:1", {"a": "1"}),
        ("a:1, b:2", {"a": "1", "b": "2"}),
        ("a:", {"a": ""}),
        (r"gpu_device_ids:0\,1", {"gpu_device_ids": "0,1"}),
        (r"engine_dir:C\:/e,b:x\,y\:z", {"engine_dir": "C:/e", "b": "x,y:z"}),
        (r"a:1\2", {"a": r"1\2"}),
    ],
)
def test_substitutions_are_split_at_unescaped_separators(text: str, values: dict[str, str]) -> None:
    assert parse_substitutions(text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "'a' has no colon"),
        ("ids:0,1", "'1' has no colon"),
        ("a:b:c", "'a:b:c' has more than one colon: escape colons"),
        (":b", "no key"),
        ("a:1,", "no colon"),
        ("a:1,a:2", "a is given twice"),
    ],
)
def test_malformed_substitutions_are_rejected(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        parse_substitutions(text)


def test_unset_queue_limits_are_0_and_other_placeholders_stay() -> None:
    filled = fill_template("${max_queue_size} ${max_queue_delay_microseconds} ${other}", {})
    assert filled.text == "0 0 ${other}"
    assert filled.unfilled == ("other",)
    assert fill_template("${max_queue_size}", {"max_queue_size": "7"}).text == "7"


def test_unknown_key_error_lists_the_placeholders() -> None:
    with pytest.raises(TemplateError, match="typo is not in the template; its placeholders are a, b"):
        fill_template("${a} ${b}", {"typo": "1"})


def test_filled_template_of_every_parameter_is_a_configuration() -> None:
    values = {"engine_dir": "/e:1", "gpu_device_ids": "0,1;2", "medusa_choices": "{0,0},{1}"}
    names = [*PARAMETERS, "triton_max_batch_size", "max_queue_size", "max_queue_delay_microseconds"]
    template = (
        "max_batch_size: ${triton_max_batch_size}\n"
        "dynamic_batching { max_queue_delay_microseconds: ${max_queue_delay_microseconds} "
        "default_queue_policy { max_queue_size: ${max_queue_size} } }\n"
    )
    for name, parameter in PARAMETERS.items():
        template += f'parameters: {{ key: "{parameter.key}" value: {{ string_value: "${{{name}}}" }} }}\n'
    pairs = {name: values.get(name, "3") for name in names if not name.startswith("max_queue")}
    substitutions = parse_substitutions(",".join(f"{name}:{_escape(value)}" for name, value in pairs.items()))
    filled = fill_template(template, substitutions)
    config = text_format.Parse(filled.text, model_config_pb2.ModelConfig())
    assert (config.max_batch_size, config.dynamic_batching.default_queue_policy.max_queue_size) == (3, 0)
    for name, parameter in PARAMETERS.items():
        assert config.parameters[parameter.key].string_value == values.get(name, "3")
    assert (filled.unused, filled.unfilled) == ((), ())


def test_key_that_is_already_filled_is_reported_as_unused() -> None:
    filled = fill_template('key: "a" value: "1"', {"a": "2"})
    assert (filled.text, filled.unused) == ('key: "a" value: "1"', ("a",))
