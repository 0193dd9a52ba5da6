"""The README does what it says: its Python runs, its commands parse, its files, presets and figures are there.

Of the Python blocks, which run in order in one namespace, only the numbers that make them long are replaced: `seeds` by
4 and `env_steps` by 1,024. Everything else, the files they write included, is what a reader would get.
"""

import re
import shlex
from pathlib import Path

import pytest

import jaxrl
from jaxrl import (
    cli,
    command_bandit,
    command_experiment,
    command_parsing,
    command_sweep,
    command_train,
    command_values,
    presets,
    search_space,
)
from jaxrl.command_export import Export
from jaxrl.command_report import Report
from jaxrl.command_shards import Merge, Resume
from jaxrl.experiments import EXPERIMENTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```bash\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
OTHERS = {"export": Export, "merge": Merge, "report": Report, "resume": Resume}
COMMANDS = [
    line.partition(" #")[0].strip()
    for line in [*"".join(SHELL).splitlines(), *re.findall(r"`(jaxrl \w+ [^`<]*)`", README)]
]


def shortened(block: str) -> str:
    """The block with fewer seeds and environment steps."""
    block = re.sub(r"\bseeds=[\d_]+", "seeds=4", block)
    return re.sub(r"\benv_steps=[\d_]+", "env_steps=1_024", block)


def test_python_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a script or a notebook, where one's own modules are found
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(BLOCKS, start=1):
        exec(compile(shortened(block), f"README.md, Python block {number}", "exec"), namespace)
    for file in ("runs/cartpole/metrics.nc", "cartpole.mp4", "runs/own/metrics.nc"):
        assert (tmp_path / file).is_file()


def test_there_are_python_blocks():
    assert any("jaxrl.train(" in block for block in BLOCKS)


def test_the_two_commands_are_on_lines_of_their_own():
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("jaxrl ")])
def test_commands_parse(command: str):
    name, *args = shlex.split(command)[1:]
    if name in ("train", "plan"):  # which take the same options
        algorithm, environment, *options = args
        environment = environment.replace("mymodule:MyEnv", "cartpole")
        parsed, defaults = command_train._parse_options(algorithm, environment, options, "jaxrl train")
        command_values.split("hparams", parsed.hparams, defaults.hparams)
    elif name == "bandit":
        command_bandit.parse_bandit_options(args)
    elif name == "experiment":
        if args:
            command_experiment.parse_options(EXPERIMENTS[args[0]], args[1:])
    elif name == "sweep":
        algorithm, environment, *options = args
        parsed, base, _ = command_sweep._parse_options(algorithm, environment, options, "jaxrl sweep")
        search_space.parse_space(parsed.space, base)
    else:
        command_parsing.parse((cli._SIMPLE | OTHERS)[name], args, f"jaxrl {name}")


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
