"""Python blocks, commands and files that the documents mention.

In Python blocks only the numbers that make them long are replaced: `seeds` by 4 and `env_steps` by 1,024. Everything
else, including the files that they write, is as for a reader.
"""

import functools
import re
import shlex
from pathlib import Path

from bench.studies import STUDIES
from bench.studies import __main__ as studies
from jaxrl.algorithms import registry as algorithms
from jaxrl.cli import bandit as command_bandit
from jaxrl.cli import benchmark as command_benchmark
from jaxrl.cli import dataclass_options as command_values
from jaxrl.cli import main as cli
from jaxrl.cli import meta as command_meta
from jaxrl.cli import parsing as command_parsing
from jaxrl.cli import plan as command_plan
from jaxrl.cli import search as command_search
from jaxrl.cli import train as command_train
from jaxrl.cli.compare import Compare
from jaxrl.cli.evaluate import Evaluate
from jaxrl.cli.export import Export
from jaxrl.cli.plot import Plot
from jaxrl.cli.preset_choice import parse_started
from jaxrl.cli.report import Report
from jaxrl.cli.resume_merge import Merge, resume_options
from jaxrl.cli.submit import Submit
from jaxrl.tuning import space as search_space

ROOT = Path(__file__).parent.parent

_OTHERS = {
    "compare": Compare,
    "evaluate": Evaluate,
    "export": Export,
    "merge": Merge,
    "plot": Plot,
    "report": Report,
    "resume": resume_options(),
    "submit": Submit,
}


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of its shell blocks, and those of jaxrl and of studies in its sentences."""
    in_sentences = re.findall(r"`(jaxrl \w+ [^`<]*|python -m bench\.studies \w[^`<]*)`", text)
    lines = re.sub(r" *\\\n *", " ", "".join(blocks(text, "bash"))).splitlines()
    return [line.partition(" #")[0].strip() for line in [*lines, *in_sentences]]


def shortened(block: str) -> str:
    """The block with fewer seeds and environment steps."""
    block = re.sub(r"\bseeds=[\d_]+", "seeds=4", block)
    return re.sub(r"\benv_steps=[\d_]+", "env_steps=1_024", block)


def run_blocks(text: str, name: str) -> None:
    """Run its Python blocks in order in the current directory, as one script."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(text, "python"), start=1):
        run_block(block, f"{name}, Python block {number}", namespace)


def run_block(block: str, name: str, namespace: dict[str, object] | None = None) -> None:
    """Run a Python block in the current directory: alone, with its own imports, or in a namespace."""
    exec(compile(shortened(block), name, "exec"), {"__name__": "__main__"} if namespace is None else namespace)


def parse_command(command: str) -> None:
    """Parse a command line as jaxrl, or the studies, would."""
    if command.startswith(studies.PROG):
        name, *args = shlex.split(command.removeprefix(studies.PROG))
        studies.parse_options(STUDIES[name], args)
        return
    name, *args = shlex.split(command)[1:]
    if name in ("train", "plan"):  # which take the same options but one
        algorithm, environment, *options = args
        # A function or a class of the reader's own; the function of a copied file has the name of the original.
        copied = re.sub(r"^\w+:", "", algorithm)
        algorithm = copied if copied in algorithms.ROWS else re.sub(r"^\w+:\w+$", "ppo", algorithm)
        environment = re.sub(r"^\w+:\w+$", "cartpole", environment)
        words = [algorithm, environment, *options]
        further = [command_plan.TARGET] if name == "plan" else []
        options_class = functools.partial(command_train.options_class, further=further)
        parsed, start = parse_started(words, name, command_train.HEADING, options_class)
        command_values.split("hparams", parsed.hparams, start.hparams)
    elif name == "bandit":
        command_bandit.parse_bandit_options(args)
    elif name == "search":
        parsed, _ = parse_started(args, "search", command_search.HEADING, command_search.options_class)
        search_space.parse_space(parsed.space)
    elif name == "meta":
        parsed, start = parse_started(args, "meta", command_meta.HEADING, command_meta.options_class)
        assert parsed.theta and start.configured(parsed, args)
    elif name == "benchmark":
        command_parsing.parse(command_benchmark.COMMANDS[args[0]], args[1:], "jaxrl benchmark")
    else:
        command_parsing.parse((cli._SIMPLE | _OTHERS)[name], args, f"jaxrl {name}")
