"""What the documentation says exists: commands, flags, make targets, calls, files, fields."""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from pydantic import BaseModel

from dataserver.cli.main import COMMANDS
from dataserver.config import ServerConfig
from dataserver.run_spec import RunSpec
from dataserver.testing import running_server, write_store
from dataserver.v1 import (
    batch_service_pb2,
    cursor_service_pb2,
    run_service_pb2,
    store_service_pb2,
    weight_sync_service_pb2,
)
from deploy.launcher.job import JobConfig
from orchestrator.config import OrchestratorConfig
from trainer.config import TrainerConfig
from trainer.config_file import parse_config

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()

SERVICES = {
    service.full_name: service
    for module in (
        batch_service_pb2,
        cursor_service_pb2,
        run_service_pb2,
        store_service_pb2,
        weight_sync_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
}

# Calls that change something or never end are no part of a tour.
NOT_TOURED = {
    "BatchService/StreamMicroBatches",
    "CursorService/CommitCursor",
    "CursorService/RewindRun",
    "RunService/AmendRun",
    "RunService/BeginAttempt",
    "RunService/CreateRun",
    "RunService/DeleteRun",
    "RunService/WatchRun",
    "WeightSyncService/HoldWeightSync",
    "WeightSyncService/LeaseOrchestrator",
    "WeightSyncService/ReleaseOrchestrator",
    "WeightSyncService/ReleaseWeightSync",
    "WeightSyncService/ReportWeightSync",
    "WeightSyncService/WatchWeightSyncState",
}


@pytest.fixture(scope="module")
def pages(repository_files: list[Path]) -> dict[Path, str]:
    return {path: (REPOSITORY / path).read_text() for path in repository_files if path.suffix == ".md"}


@pytest.fixture(scope="module")
def commands() -> dict[str, set[str]]:
    """`dataserver …` -> its flags."""
    parser = argparse.ArgumentParser(prog="dataserver")
    group = parser.add_subparsers()
    for command in COMMANDS:
        import_module(f"dataserver.cli.{command}").add_parser(group)
    return dict(leaves(parser))


def leaves(parser: argparse.ArgumentParser) -> list[tuple[str, set[str]]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    flags = {flag for action in parser._actions for flag in action.option_strings}
    return [leaf for group in groups for child in group.choices.values() for leaf in leaves(child)] or [
        (parser.prog, flags)
    ]


def code(text: str) -> list[str]:
    """What stands in code, inline or in blocks, a line each."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (.*)$", text, re.MULTILINE)
    return [*re.findall(r"`([^`\n]+)`", text), *indented, *(line for block in blocks for line in block.splitlines())]


def test_every_command_and_flag_that_is_mentioned_exists(pages: dict[Path, str], commands: dict[str, set[str]]) -> None:
    unknown = []
    for path, text in pages.items():
        for line in code(text):
            words = line.removeprefix("$ ").split()
            if words[:1] != ["dataserver"] or len(words) == 1:
                continue
            names = [name for name in commands if words[: len(name.split())] == name.split()]
            flags = {word.partition("=")[0] for word in words if word.startswith("--")}
            is_group = any(name.startswith(f"{line} ") for name in commands)
            if not is_group and not any(flags <= commands[name] for name in names):
                unknown.append(f"{path}: {line}")
    assert unknown == []


def test_every_make_target_that_is_mentioned_exists(pages: dict[Path, str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    mentioned = {
        word for text in pages.values() for line in code(text) for word in re.findall(r"^make ([a-z-]+)", line)
    }
    assert mentioned
    assert mentioned - targets == set()


def test_every_link_leads_somewhere(pages: dict[Path, str]) -> None:
    broken = [
        f"{path}: {link}"
        for path, text in pages.items()
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
        if "://" not in link and not (REPOSITORY / path.parent / link).exists()
    ]
    assert broken == []


def test_every_grpcurl_call_that_is_shown_is_one_that_the_server_answers(pages: dict[Path, str]) -> None:
    calls = [
        match.groups()
        for text in pages.values()
        for match in re.finditer(r"grpcurl -plaintext(?: -d '([^']*)')? \S+ (dataserver\.v1\.\w+)/(\w+)", text)
    ]
    assert calls
    for request, service, method in calls:
        message = message_factory.GetMessageClass(SERVICES[service].methods_by_name[method].input_type)
        json_format.Parse(request or "{}", message(), descriptor_pool=descriptor_pool.Default())


def test_the_tour_makes_every_call_that_only_looks() -> None:
    tour = (REPOSITORY / "docs" / "grpcurl.md").read_text()
    rpcs = {f"{service.name}/{method.name}" for service in SERVICES.values() for method in service.methods}
    assert {rpc for rpc in rpcs if f"dataserver.v1.{rpc}\n" not in tour} == NOT_TOURED


def generate(docs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, docs / "generate.py", "--check"], capture_output=True, text=True)


def test_generated_pages_are_fresh() -> None:
    result = generate(REPOSITORY / "docs")
    assert result.returncode == 0, result.stderr


def test_a_stale_page_in_a_copy_is_caught(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(REPOSITORY / "docs", docs)
    page = docs / "configuration.md"
    page.write_text(page.read_text().replace("| `lease_s` |", "| `lease` |"))
    result = generate(docs)
    assert result.returncode == 1
    assert "configuration.md: stale" in result.stderr


def test_the_trainers_configuration_in_the_readme_is_one() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    assert parse_config(tomllib.loads(blocks[0]), "README.md").run.name == "chat-sft"


def test_the_loop_in_the_readme_consumes_an_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    write_store(tmp_path / "chat", lengths=[4, 9, 300, 5000])
    with running_server({"chat": tmp_path / "chat"}) as server:
        exec(compile(blocks[0].replace("127.0.0.1:50051", server.endpoint), "README.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.count("[") == 4, "one micro-batch holds them all, and four arrays of it are printed"


@pytest.mark.parametrize(
    "model", [ServerConfig, TrainerConfig, RunSpec, OrchestratorConfig, JobConfig], ids=lambda model: model.__name__
)
def test_every_field_of_a_configuration_is_listed(model: type[BaseModel]) -> None:
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    schema = model.model_json_schema()
    fields = {name for table in (schema, *schema["$defs"].values()) for name in table.get("properties", ())}
    assert fields
    headings = ".".join(re.findall(r"^### `\[+([\w.]+)\]", page, re.MULTILINE))
    listed = {*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE), *headings.split(".")}
    assert fields - listed == set()
