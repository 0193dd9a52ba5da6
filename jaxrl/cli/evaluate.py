"""`jaxrl evaluate`: whole episodes with the policies of a run directory, on parameters of its training or others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jaxrl
from jaxrl.cli.parsing import Allow, CommandError, KeptPolicy, RunDirectory, Trust

EXAMPLE = "length=0.1,0.5,2"


@dataclass(frozen=True)
class Evaluate:
    """Run whole episodes with the policies of a run directory, optionally under other environment parameters."""

    run: RunDirectory
    episodes: int = 100
    """Number of episodes of every policy with greedy actions, and the same number with sampled actions."""
    key: int = 0
    """Random seed of the evaluation."""
    kept: KeptPolicy = "last"
    discount: str | None = None
    """Discount, such as 0.99 or hyperbolic:k=0.02, of two further tables, discounted_return and
    discounted_return_sampled; independent of that of the training. No such tables if None."""
    held_out: tuple[str, ...] = ()
    """Values of the environment's parameters, NAME=VALUE,VALUE each, such as length=0.1,0.5,2: every combination is
    evaluated, without the draws of train --randomise. If empty, the parameters of the training, with these draws."""
    picture: Path | None = None
    """Picture to write, a map of the return over the parameters of --held-out: .png, .pdf or .svg."""
    x: str | None = None
    """Parameter of --held-out along the horizontal axis of the picture; the first one with several values if None."""
    y: str | None = None
    """Parameter of --held-out along the vertical axis of the picture; the next one with several values if None."""
    allow: Allow = ()
    trust: Trust = False

    def run_command(self) -> None:
        """Print a table for each metric."""
        from jaxrl.runtime.evaluate_again import evaluate_result

        values = _values(self.held_out)
        _check_picture(self.picture, values, {"x": self.x, "y": self.y})
        discount = None if self.discount is None else jaxrl.as_discount(self.discount)
        result = jaxrl.load_result(self.run, allow=self.allow, trust=self.trust).with_policies(self.kept)
        if values:
            self._on_held_out_parameters(result, values, discount)
            return
        evaluated = evaluate_result(result, self.episodes, self.key, discount=discount)
        print(self._heading(discount))
        for metric in (*_returns(discount), "length"):
            print(f"\n{evaluated.table(metric)}")

    def _heading(self, discount: Any) -> str:
        """A line about the episodes."""
        which = "final policy" if self.kept == "last" else "policy of the best evaluation"
        under = "" if discount is None else f"; discounted_return is under {discount}"
        return f"{self.episodes} whole episodes with every {which}, greedy and sampled{under}"

    def _on_held_out_parameters(self, result: jaxrl.Result, values: dict[str, list[float]], discount: Any) -> None:
        """Print tables of the returns over parameters, and write the picture."""
        from envs.wrappers.randomising import without_draws
        from jaxrl.results.plotting.heat_map import MOST_PANELS

        count = len(result.settings)
        if self.picture is not None and count > MOST_PANELS:
            raise CommandError(f"--picture takes a run of at most {MOST_PANELS} settings, a panel each, got {count}")
        env = None if result.algo is None else without_draws(result.algo.env)
        episodes = jaxrl.evaluate(result, env, self.episodes, self.key, env_params=values, discount=discount)
        if discount is not None:
            print(f"{self._heading(discount)}\n")
        for metric in _returns(discount):
            print(f"{jaxrl.held_out_table(episodes, metric)}\n")
        if self.picture is not None:
            jaxrl.plotting.heat_map(episodes, x=self.x, y=self.y, path=self.picture)
            print(f"Wrote {self.picture}.")


def _returns(discount: Any) -> tuple[str, ...]:
    """Names of the returns that are shown."""
    discounted = () if discount is None else ("discounted_return", "discounted_return_sampled")
    return ("return", "return_sampled", *discounted)


def _values(words: Sequence[str]) -> dict[str, list[float]]:
    """Values of parameters by name."""
    values: dict[str, list[float]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            numbers = [float(each) for each in text.split(",")]
        except ValueError:
            numbers = []
        if not (name and equals and numbers and all(map(math.isfinite, numbers))):
            raise CommandError(f"--held-out takes NAME=VALUE,VALUE with numbers, such as {EXAMPLE}, but got {word!r}")
        if name in values:
            raise CommandError(f"--held-out has {name} twice")
        values[name] = numbers
    return values


def _check_picture(picture: Path | None, values: dict[str, list[float]], axes: dict[str, str | None]) -> None:
    """Reject a picture that could not be drawn, before anything is evaluated."""
    from jaxrl.results.plotting.style import require_picture

    chosen = {flag: name for flag, name in axes.items() if name is not None}
    if picture is None:
        for flag, name in chosen.items():
            raise CommandError(f"--{flag} takes --picture as well, but got {name} alone")
        return
    require_picture(picture)
    if not values:
        raise CommandError(f"--picture takes --held-out as well, such as --held-out {EXAMPLE}")
    for flag, name in chosen.items():
        if name not in values:
            raise CommandError(f"--{flag} takes a parameter of --held-out, {', '.join(values)}, but got {name}")
    if len(set(chosen.values())) < len(chosen):
        raise CommandError(f"--x and --y take two parameters, but got {axes['x']} twice")
    several = [name for name, numbers in values.items() if len(numbers) > 1]
    if len({*several, *chosen.values()}) > 2:
        raise CommandError(
            f"--picture takes at most two parameters of --held-out with several values, but got {', '.join(several)}"
            + (f" with {' and '.join(chosen.values())} along the axes" if chosen else "")
        )
