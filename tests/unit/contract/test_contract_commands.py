"""`lastgood contract`: exit codes, JSON, and a starter that never overwrites."""

import json

import pytest
from click.testing import CliRunner

from lastgood.base.errors import LastgoodError
from lastgood.cli.contract_commands import contract
from lastgood.contract.starter import starter_text, starter_value


def call(*arguments: str):
    return CliRunner().invoke(contract, arguments, standalone_mode=False)


@pytest.fixture
def starter(tmp_path):
    path = tmp_path / "contract.yaml"
    path.write_text(starter_text())
    return path


def test_check_of_a_complete_contract_exits_zero(starter):
    result = call("check", str(starter))
    assert result.return_value == 0
    assert "complete, digest" in result.output


def test_check_exits_two_and_names_every_missing_duty(starter):
    text = starter_text()
    starter.write_text(text[: text.index("  # The proof that recovery works")])
    result = call("check", str(starter))
    assert result.return_value == 2
    for part in ("replayTest", "injection", "accept", "owner"):
        assert f"spec.duties.training.{part}: found nothing" in result.output
    assert "refused, 4 problems" in result.output


def test_check_as_json_says_the_same_for_machines(starter):
    good = json.loads(call("check", "--json", str(starter)).output)
    assert good["ok"] is True
    assert len(good["digest"]) == 64
    starter.write_text(starter_text().replace("target: 0.97", "target: 97"))
    result = call("check", "--json", str(starter))
    bad = json.loads(result.output)
    assert result.return_value == 2
    assert bad["ok"] is False
    assert [problem["what"] for problem in bad["problems"]] == ["spec.objectives[0].target"]
    assert bad["problems"][0]["next"] == "write 0.97"


def test_explain_without_a_file_explains_what_is_assumed():
    result = call("explain")
    assert result.return_value == 0
    assert "not declared" in result.output
    assert "Every value: no contract was declared" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80
    as_json = json.loads(call("explain", "--json").output)
    assert as_json["is_assumed"] is True
    assert as_json["contract"]["spec"]["recovery"]["detect"]["timeout_us"] == 60_000_000


def test_explain_of_a_wrong_file_raises_every_problem(starter):
    starter.write_text("spec: 3\n")
    result = call("explain", str(starter))
    assert isinstance(result.exception, LastgoodError)
    assert result.exception.exit_code == 2


def test_the_schema_describes_every_key_of_the_starter(starter):
    schema = json.loads(call("schema").output)
    assert {"apiVersion", "kind", "metadata", "spec"} == set(schema["properties"])
    definitions = schema["$defs"].values()
    undescribed = [
        name
        for definition in definitions
        for name, field in definition.get("properties", {}).items()
        if "description" not in field
    ]
    assert undescribed == []


def test_an_editor_that_uses_the_schema_accepts_the_starter_and_refuses_what_check_refuses():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(call("schema").output)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    value = starter_value("training")
    assert [error.message for error in validator.iter_errors(value)] == []
    value["spec"]["recovery"]["detect"] |= {"timeout": "90", "onTimeout": "fall_back"}
    value["spec"]["objectives"][0]["target"] = 97
    value["spec"]["extra"] = 1
    wrong = {error.json_path for error in validator.iter_errors(value)}
    assert {"$.spec", "$.spec.recovery.detect.timeout", "$.spec.recovery.detect.onTimeout"} <= wrong


def test_init_writes_a_starter_once_and_overwrites_only_by_force(tmp_path):
    path = tmp_path / "new.yaml"
    assert call("init", "-o", str(path)).return_value == 0
    assert path.read_text() == starter_text() == call("init").output
    path.write_text("mine")
    refused = call("init", "-o", str(path))
    assert isinstance(refused.exception, LastgoodError)
    assert path.read_text() == "mine"
    assert call("init", "--force", "-o", str(path)).return_value == 0
    assert path.read_text() == starter_text()


def test_the_example_in_the_repository_is_the_starter_and_passes(request):
    example = request.config.rootpath / "examples" / "contract.yaml"
    assert example.read_text() == starter_text()
