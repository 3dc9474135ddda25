"""What differs between the surroundings of two runs: each fact is named, and what a side does not know is no difference."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bench_records.manifest import Deployment, EmbeddedServer, Environment, Manifest, OneTarget, TargetFacts
from reports.compare.surroundings import ChangedFact, surroundings_difference

_MODELS: dict[str, dict[str, Any]] = {
    "tensorrt_llm": {
        "parameters": {"max_num_sequences": "256"},
        "instance_group": [{"name": "g_0", "count": 1}],
        "input": [{"name": "input_ids", "dims": ["-1"]}, {"name": "end_id", "dims": ["1"], "optional": True}],
    },
    "ensemble": {"ensemble_scheduling": {"step": [{"model_name": "a"}, {"model_name": "b"}]}},
}
_BEFORE = Manifest(
    target=TargetFacts(protocol="grpc", model="ensemble", decoupled=True, address="a:1", model_parameters={"x": "1"}),
    server=EmbeddedServer(engine={"engine": "openvino", "max_num_tokens": 2048}, engine_files={"a.bin": "9 bytes, 1f"}),
    deployment=Deployment(server="triton", version="2.51.0", extensions=("statistics",), models=_MODELS),
    environment=Environment(cpu="c", cores=2, kernel="6.1", python="3.11.2", packages={"numpy": "1.26.4", "grpcio": "1.60"}),
)


def _changed(now: Manifest, before: Manifest = _BEFORE) -> list[tuple[str, str, str]]:
    return [(fact.what, fact.before, fact.now) for fact in surroundings_difference(before, now).changed]


def test_equal_surroundings_do_not_differ_wherever_the_server_is() -> None:
    found = surroundings_difference(_BEFORE, replace(_BEFORE, target=replace(_BEFORE.target, address="b:2"), run_id="0" * 32))
    assert found.changed == ()
    assert found.unknown == ()
    assert found.compared == 27


def test_a_setting_of_a_model_is_named_by_its_place_in_the_configuration() -> None:
    core = {
        "parameters": {"max_num_sequences": "8", "added": "yes"},
        "instance_group": [{"name": "g_0", "count": 1}],
        "input": [{"name": "end_id", "dims": ["1"]}, {"name": "input_ids", "dims": ["-1"]}],
    }
    models = {"tensorrt_llm": core, "postprocessing": {}}
    assert _changed(replace(_BEFORE, deployment=replace(_BEFORE.deployment, models=models))) == [
        ("model ensemble", "ready", "–"),
        ("model ensemble.ensemble_scheduling.step.0.model_name", "a", "–"),
        ("model ensemble.ensemble_scheduling.step.1.model_name", "b", "–"),
        ("model postprocessing", "–", "ready"),
        ("model tensorrt_llm.input.end_id.optional", "true", "–"),
        ("model tensorrt_llm.parameters.added", "–", "yes"),
        ("model tensorrt_llm.parameters.max_num_sequences", "256", "8"),
    ]


def test_items_of_a_list_without_a_name_have_their_places() -> None:
    before, now = (
        replace(_BEFORE, deployment=replace(_BEFORE.deployment, models={"m": {"x": [{"name": "a", "y": 1}, {"y": 2}, last]}}))
        for last in ("plain", "other")
    )
    assert _changed(now, before) == [("model m.x.2", "plain", "other")]
    added = [fact.what for fact in surroundings_difference(_BEFORE, before).changed if fact.before == "–"]
    assert added == ["model m", "model m.x.1.y", "model m.x.2", "model m.x.a.name", "model m.x.a.y"]


def test_server_engine_machine_and_versions_are_named() -> None:
    now = Manifest(
        target=replace(_BEFORE.target, decoupled=False, protocol="http"),
        server=EmbeddedServer(
            engine={"engine": "openvino", "max_num_tokens": 512, "of_a_later_release": 1},
            engine_files={"a.bin": "9 bytes, 2f", "b.bin": "0 bytes, 00"},
        ),
        deployment=replace(_BEFORE.deployment, version="2.60.0", extensions=("statistics", "logging")),
        environment=replace(
            _BEFORE.environment, cores=4, kernel="6.2", gpus=("H100",), python="3.12.1", packages={"numpy": "2.1", "new": "1"}
        ),
    )
    assert _changed(now) == [
        ("server extensions", "statistics", "statistics, logging"),
        ("server version", "2.51.0", "2.60.0"),
        ("engine max_num_tokens", "2048", "512"),
        ("file a.bin", "9 bytes, 1f", "9 bytes, 2f"),
        ("file b.bin", "–", "0 bytes, 00"),
        ("target decoupled", "true", "false"),
        ("target protocol", "grpc", "http"),
        ("machine cores", "2", "4"),
        ("machine kernel", "6.1", "6.2"),
        ("version grpcio", "1.60", "–"),
        ("version new", "–", "1"),
        ("version numpy", "1.26.4", "2.1"),
        ("version python", "3.11.2", "3.12.1"),
    ]


def test_a_run_of_before_is_compared_by_the_parameters_of_its_model() -> None:
    before = replace(_BEFORE, deployment=None)
    now = replace(_BEFORE, target=replace(_BEFORE.target, model_parameters={"x": "2"}))
    found = surroundings_difference(before, now)
    assert found.changed == (ChangedFact("parameters x", "1", "2"),)
    assert found.unknown == ("the server's name and version", "the configuration of the models")
    assert surroundings_difference(_BEFORE, now).changed == ()  # all models have their configuration there


def test_a_part_that_a_side_lacks_is_not_compared() -> None:
    found = surroundings_difference(_BEFORE, replace(_BEFORE, server=None, environment=None))
    assert found.unknown == (
        "the settings of the engine that bench deploys",
        "the files of the engine that bench deploys",
        "this machine",
        "the versions of the software",
    )
    of_engine = found.unknown[:2]
    assert surroundings_difference(replace(_BEFORE, server=None), _BEFORE).unknown == of_engine
    assert surroundings_difference(Manifest(), Manifest()).unknown == (
        "the server's name and version",
        "the configuration of the models",
        "this machine",
        "the versions of the software",
    )
    named, versioned = Deployment(server="triton"), Deployment(version="2.51.0")
    for deployment, missing in ((named, [("server version", "2.51.0", "–")]), (versioned, [("server server", "triton", "–")])):
        assert _changed(replace(_BEFORE, deployment=deployment)) == [("server extensions", "statistics", "–"), *missing]


def test_one_server_is_the_first_of_several_of_the_other_side() -> None:
    """Each fact of it differed, by its name alone."""
    target = OneTarget(address="a:1", deployment=_BEFORE.deployment, model_parameters={"x": "1"})
    facts = replace(_BEFORE.target, servers=2, balance="round_robin")
    two = replace(_BEFORE, target=facts, deployment=None, targets=(target, replace(target, address="b:2", deployment=None)))
    assert _changed(_BEFORE, two) == [("target balance", "round_robin", "–"), ("target servers", "2", "–")]
    assert _changed(two) == []
    newer = replace(target, address="b:2", deployment=Deployment(server="triton", version="2.60.0"), model_parameters=None)
    older = replace(newer, deployment=Deployment(server="triton", version="2.51.0"), model_parameters={"x": "2"})
    sides = [replace(two, targets=(replace(target, deployment=newer.deployment), other)) for other in (older, newer)]
    assert _changed(*reversed(sides)) == [
        ("server version of --url 2", "2.51.0", "2.60.0"),
        ("parameters x of --url 2", "2", "–"),
    ]
