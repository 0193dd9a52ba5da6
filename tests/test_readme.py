"""The README does what it says: its Python runs, its commands parse, its files, presets and figures are there."""

import re
from pathlib import Path

import pytest
from documents import ROOT, blocks, commands, parse_command, run_blocks

import jaxrl
from jaxrl.presets import control as presets

README = (ROOT / "README.md").read_text()
BLOCKS = blocks(README, "python")
COMMANDS = commands(README)


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a script or a notebook, where one's own modules are found
    run_blocks(README, "README.md", alone=True)
    for file in ("runs/cartpole/metrics.nc", "cartpole.mp4", "runs/own/metrics.nc"):
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
    listed = re.findall(r"`((?:envs|jaxrl|notebooks|tests|bench)/[\w/.]*)`", README)
    assert "notebooks/pictures/learning-curves.png" in linked
    for path in {*linked, *listed}:
        assert (ROOT / path).exists(), path


def test_every_preset_has_a_row_with_the_steps_that_it_takes():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in README.splitlines()
        if "`jaxrl train ppo" in line and "--env-steps" not in line  # which takes other steps than the preset
    ]
    steps = {cells[-1].strip("`").split()[3]: int(cells[1].replace(",", "")) for cells in rows if len(cells) == 7}
    rounded = {}
    for algorithm, environment in presets.names():
        preset = presets.preset(algorithm, environment)
        iteration = preset.algo.env_steps_per_iteration
        rounded[environment] = -(-preset.env_steps // iteration) * iteration
    assert steps == rounded


def test_every_discount_of_the_table_is_the_class_beside_it():
    rows = re.findall(r"^\| (`[^|]*`) \| `(\w+)\(([^)]*)\)` \|", README, flags=re.MULTILINE)
    assert len(rows) == 7
    for strings, name, parameters in rows:
        for string in re.findall(r"`([^`]+)`", strings):
            discount = jaxrl.as_discount(float(string) if re.fullmatch(r"[\d.]+", string) else string)
            assert type(discount) is getattr(jaxrl, name)
            assert string in (str(discount), "0.98")
            if name != "Tabulated":
                assert tuple(vars(discount)) == tuple(parameters.split(", "))
