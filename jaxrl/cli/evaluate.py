"""`jaxrl evaluate`: whole episodes with the policies of a run directory, on parameters of its training or others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jaxrl
from jaxrl.cli.parsing import Allow, CommandError, KeptPolicy, RunDirectory, Trust

EXAMPLE = "length=0.1,0.5,2"


@dataclass(frozen=True)
class Evaluate:
    """Run whole episodes with the policies of a run directory, also on other parameters of the environment."""

    run: RunDirectory
    episodes: int = 100
    """Number of greedy episodes of every policy, and of episodes with sampled actions."""
    key: int = 0
    """Random seed of the evaluation."""
    kept: KeptPolicy = "last"
    held_out: tuple[str, ...] = ()
    """Values of the environment's parameters, NAME=VALUE,VALUE each, such as length=0.1,0.5,2: every combination is
    evaluated, without draws of train --randomise; those of the training if empty."""
    picture: Path | None = None
    """Picture to write, a map of the return over the parameters of --held-out: .png, .pdf or .svg."""
    allow: Allow = ()
    trust: Trust = False

    def run_command(self) -> None:
        """Prints a table for each metric."""
        from jaxrl.runtime.evaluate_again import evaluate_result

        if self.picture is not None and not self.held_out:
            raise CommandError(f"--picture takes --held-out as well, such as --held-out {EXAMPLE}")
        result = jaxrl.load_result(self.run, allow=self.allow, trust=self.trust).with_policies(self.kept)
        if self.held_out:
            self._on_held_out_parameters(result)
            return
        evaluated = evaluate_result(result, self.episodes, self.key)
        which = "final policy" if self.kept == "last" else "policy of the best evaluation"
        print(f"{self.episodes} whole episodes with every {which}, greedy and sampled")
        for metric in ("return", "return_sampled", "length"):
            print(f"\n{evaluated.table(metric)}")

    def _on_held_out_parameters(self, result: jaxrl.Result) -> None:
        """Prints tables of the returns over parameters, and writes the picture."""
        from envs.wrappers.randomising import without_draws
        from jaxrl.results.plotting.style import require_picture

        if self.picture is not None:
            require_picture(self.picture)
        env = None if result.algo is None else without_draws(result.algo.env)
        episodes = jaxrl.evaluate(result, env, self.episodes, self.key, env_params=_values(self.held_out))
        for metric in ("return", "return_sampled"):
            print(f"{jaxrl.held_out_table(episodes, metric)}\n")
        if self.picture is not None:
            jaxrl.plotting.heat_map(episodes, path=self.picture)
            print(f"Wrote {self.picture}.")


def _values(words: Sequence[str]) -> dict[str, list[float]]:
    """Values of parameters by name."""
    from jaxrl.sweeps.distributions import Choice
    from jaxrl.tuning.space import parse_space

    values = {}
    for name, distribution in parse_space(words, "--held-out", EXAMPLE).items():
        if not isinstance(distribution, Choice):
            raise CommandError(f"--held-out takes values, such as {EXAMPLE}, got a range for {name}")
        values[name] = list(distribution.values)
    return values
