"""The README is correct: its Python runs, its commands parse, its files exist, and it is short."""

import re
from pathlib import Path

import pytest
from documents import ROOT, blocks, commands, parse_command, run_block

import jaxrl
from jaxrl.version import REPOSITORY

README = (ROOT / "README.md").read_text()
BLOCKS = blocks(README, "python")
COMMANDS = commands(README)


FILES = {0: ("runs/cartpole/metrics.nc", "cartpole.mp4"), len(BLOCKS) - 1: ("runs/own/metrics.nc",)}


# A block trains, saves, draws and renders as a reader would: 26 to 31 s of processor time while the other core is busy.
@pytest.mark.seconds_to_compile(45)
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_python_block_runs_alone(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a script or a notebook, which finds modules in its directory
    run_block(BLOCKS[number], f"README.md, Python block {number + 1}")
    for file in FILES.get(number, ()):
        assert (tmp_path / file).is_file()


def test_there_are_python_blocks():
    assert any("jaxrl.train(" in block for block in BLOCKS)


def test_the_two_commands_are_on_lines_of_their_own():
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("jaxrl ")])
def test_commands_parse(command: str):
    parse_command(command)


def test_every_path_exists():
    linked = re.findall(r"\]\(([^)#:]+)[)#]", README)
    listed = re.findall(r"`((?:envs|jaxrl|notebooks|tests|bench|docs)/[\w/.]*)`", README)
    assert "docs/pictures/learning-curves.png" in linked
    for path in {*linked, *listed}:
        assert (ROOT / path).exists(), path


def test_it_is_short():
    assert len(README.splitlines()) <= 200
    assert len(README.encode()) <= 12_288


def test_at_most_three_blocks_train():
    assert len([block for block in BLOCKS if re.search(r"\b(train|search|run_bandit)\(", block)]) <= 3


def test_the_call_site_is_the_demo():
    (demo,) = re.findall(r"jaxrl (train ppo cartpole .*?)\n\t@", (ROOT / "Makefile").read_text(), flags=re.DOTALL)
    flags = dict(re.findall(r"--([\w-]+) (\d+)", demo))
    (block,) = (block for block in BLOCKS if "jaxrl.grid(" in block)
    for flag, value in flags.items():
        assert re.search(rf"\b{flag.replace('-', '_')}={value}\b", block.replace("_000", "000")), flag
    assert "--eval-at-start " in demo and "eval_at_start=True" in block


def test_the_citation_names_this_version_and_a_published_repository():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {jaxrl.__version__}\n" in citation
    assert re.findall(r"^repository-code: (.*)$", citation, flags=re.MULTILINE) == [REPOSITORY] * bool(REPOSITORY)
