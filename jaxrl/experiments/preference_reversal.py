"""Preference reversal: what discounts plan and then choose, and what policies trained under them do.

Whether an agent that takes its plans for granted would change its mind follows from Gamma alone,
and is tabulated exactly. Whether a trained policy does is another question. Its first choice is
weighed by the returns that follow it, with the second choice as the policy itself makes it: early in
training, while the second choice is still undecided, committing to the later reward pays, and once
the policy has learned to switch it does not. `break_even` is the rate of switching in between.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import envs
import jaxrl
from envs.decision.preference_reversal import PlanValues, PreferenceReversal
from envs.errors import UserValueError
from jaxrl.checks import check_counts
from jaxrl.experiments.frames import MISSING
from jaxrl.experiments.study import Experiment, Study
from jaxrl.results.statistics import Interval, bootstrap_interval, mean

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

COMMITS, SWITCHES = "chose_later_sampled", "switched_sampled"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which agents choose, between what, and how long they learn."""

    discounts: tuple[str, ...] = (
        "exp:gamma=0.99",
        "exp:gamma=0.9944",
        "exp:gamma=0.996",
        "beta:mu=0.99,eta=0.8",
        "hyperbolic:k=0.01",
        "quasi:beta=0.8,gamma=0.996",
    )
    """One agent for each."""
    tax: tuple[float, ...] = (0.01, 0.1)
    """What switching costs: 0.01 is the task's own; a larger one makes foresight worth more."""
    sooner_step: int = 99
    """The step that pays 1, and at which one may switch."""
    later_step: int = 199
    """The step that pays 1.75, the last of an episode."""
    seeds: int = 16
    """Seeds of every setting; equal seeds share their keys."""
    env_steps: int = 384_000
    """Environment steps of a run."""
    evals: int = 20
    """Evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 16
    """Whole episodes of an evaluation, greedily and again with sampled actions."""
    lr: float = 3e-3
    """Adam's step size."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; above 0 it keeps both choices alive, and pays for being undecided."""
    num_envs: int = 32
    """Environments of a run; each iteration plays one whole episode in each."""

    def __post_init__(self):
        for name in ("discounts", "tax"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise UserValueError(
                    f"{name} takes one or more different values, got {' '.join(map(str, values)) or 'none'}"
                )
        for discount in self.discounts:
            jaxrl.as_discount(discount)
        if not 0 < self.sooner_step < self.later_step:
            raise UserValueError(
                f"sooner_step and later_step must be above 0 and in this order, got {self.sooner_step} "
                f"and {self.later_step}"
            )
        check_counts(self, seeds=2, env_steps=1, evals=1, eval_episodes=1, num_envs=1)


def run(settings: Settings, study: Study) -> None:
    """Tabulates exact preferences, trains every agent in one call, then draws what they do over training."""
    study.table("preferences", preferences(settings), _PREFERENCES)
    algo = jaxrl.ppo(
        envs.make("preference-reversal"),
        jaxrl.PPOConfig(
            num_envs=settings.num_envs,
            num_steps=settings.later_step + 1,  # whole episodes, so that with lam = 1 nothing is ever bootstrapped
            hidden=(32,),
            normalise_advantage="batch",
        ),
    )
    base = dataclasses.replace(algo.hparams, lr=settings.lr, lam=1.0, entropy_coef=settings.entropy_coef)
    discounts = [str(jaxrl.as_discount(discount)) for discount in settings.discounts]
    result = study.train(
        "training",
        algo,
        jaxrl.grid(base, {"discount": discounts, "env.tax": settings.tax}),
        seeds=settings.seeds,
        env_steps=settings.env_steps,
        evals=settings.evals,
        eval_episodes=settings.eval_episodes,
        env_params=_params(settings, 0.0),
    )
    study.table("behaviour", behaviour(result.metrics, settings), _BEHAVIOUR)
    study.figure("preference_reversal", _figure(result.metrics, settings))


def preferences(settings: Settings) -> pandas.DataFrame:
    """What each discount plans at the first choice and chooses afresh at the second, exactly, under each tax."""
    import pandas

    rows = []
    for discount in settings.discounts:
        for tax in settings.tax:
            values = _values(settings, discount, tax)
            rows.append(
                {
                    "discount": str(jaxrl.as_discount(discount)),
                    "tax": tax,
                    "t=0: sooner": values.sooner,
                    "t=0: later": values.later,
                    "plan at t=0": "later" if values.plans_later else "sooner",
                    f"t={settings.sooner_step}: switch": values.switch,
                    f"t={settings.sooner_step}: hold": values.hold,
                    f"afresh at t={settings.sooner_step}": "switch" if values.would_switch else "hold",
                    "differ": _disagreement(values, tax),
                    "foreseeing, at t=0": "later" if values.foreseeing_later else "sooner",
                }
            )
    return pandas.DataFrame(rows)


def behaviour(metrics: xarray.Dataset, settings: Settings) -> pandas.DataFrame:
    """What trained policies do, a row for each discount and tax.

    Args:
      metrics: of the training call, with `chose_later_sampled` and `switched_sampled`.
      settings: of the experiment.

    Returns:
      Rates over episodes with sampled actions: of the reversals at their most frequent, and when
      that was; of reversals, of commitments to the later reward, and of switches among those
      commitments at the last evaluation, with intervals over seeds; and how many seeds reverse
      in more than half of the episodes of the last evaluation.
    """
    import pandas

    rows = []
    for discount, tax, commits, switches in _runs(metrics, settings):
        rate = switches.mean(axis=0)
        peak = int(np.argmax(rate))
        committed = commits[:, -1].sum()
        values = _values(settings, discount, tax)
        rows.append(
            {
                "discount": str(jaxrl.as_discount(discount)),
                "tax": tax,
                "naive": "reverses" if values.reverses else MISSING,
                "most reversals": float(rate[peak]),
                "at step": int(metrics["env_step"][peak]),
                "reversals at the end": _rate(switches[:, -1]),
                "commits at the end": _rate(commits[:, -1]),
                "switches if committed": float(switches[:, -1].sum() / committed) if committed else float("nan"),
                "seeds still reversing": f"{int((switches[:, -1] > 0.5).sum())} of {len(switches)}",
                "foreseeing": "later" if values.foreseeing_later else "sooner",
            }
        )
    return pandas.DataFrame(rows)


def break_even(values: PlanValues) -> float:
    """The probability of switching above which committing to the later reward is worse than the sooner one.

    Outside [0, 1] where no probability makes that difference; the value of the commitment is
    linear in it, from `later` at 0 to `switching` at 1.
    """
    return (values.later - values.sooner) / (values.later - values.switching)


def _params(settings: Settings, tax: float) -> Any:
    return PreferenceReversal().default_params.replace(  # pyright: ignore[reportAttributeAccessIssue]
        tax=tax,
        sooner_step=settings.sooner_step,
        later_step=settings.later_step,
        max_steps_in_episode=settings.later_step + 1,
    )


def _values(settings: Settings, discount: str, tax: float) -> PlanValues:
    curve = np.asarray(jaxrl.as_discount(discount).curve(settings.later_step))
    return PreferenceReversal().values(curve, _params(settings, tax))


def _disagreement(values: PlanValues, tax: float) -> str:
    if values.reverses:
        return "yes"
    if values.plans_later == values.would_switch:  # holds on without having planned for the later reward
        return "by the tax" if 0 <= values.hold - values.switch <= tax else "yes"
    return "no"


def _runs(metrics: xarray.Dataset, settings: Settings) -> list[tuple[str, float, np.ndarray, np.ndarray]]:
    """Discount, tax, and the rates of commitments and of switches, `[seeds, points]`, of the runs that are finite."""
    found = []
    for discount in settings.discounts:
        for tax in settings.tax:
            at = metrics.sel({"discount": str(jaxrl.as_discount(discount)), "env.tax": tax})
            pair = [at[name].transpose("seed", "env_step").values.astype(np.float64) for name in (COMMITS, SWITCHES)]
            finite = np.isfinite(pair[0] + pair[1]).all(axis=1)
            found.append((discount, tax, pair[0][finite], pair[1][finite]))
    return found


def _rate(values: np.ndarray) -> str:
    estimate = bootstrap_interval(mean, values)
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _figure(metrics: xarray.Dataset, settings: Settings) -> matplotlib.figure.Figure:
    """A row of pictures for each tax: commitments, switches among them, and reversals, over training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    from jaxrl.results.plotting.curves import COLOURS

    titles = ("commits to the later reward", "switches, if committed", "realised reversals")
    figure = Figure(figsize=(12.4, 2.9 * len(settings.tax) + 0.4), layout="constrained")
    axes = figure.subplots(len(settings.tax), 3, squeeze=False, sharex=True, sharey=True)
    steps = metrics["env_step"].values
    for index, (discount, tax, commits, switches) in enumerate(_runs(metrics, settings)):
        row = axes[settings.tax.index(tax)]
        colour = COLOURS[index // len(settings.tax) % len(COLOURS)]
        style = "--" if str(jaxrl.as_discount(discount)).startswith("exp") else "-"
        for ax, rates in ((row[0], commits), (row[2], switches)):
            band = bootstrap_interval(mean, rates.T)
            _line(ax, steps, band, colour, style, str(jaxrl.as_discount(discount)))
        total = commits.sum(axis=0)
        share = np.divide(switches.sum(axis=0), total, out=np.full(len(steps), np.nan), where=total > 0)
        row[1].plot(steps, share, color=colour, linestyle=style, linewidth=1.6)
        if _values(settings, discount, tax).reverses:
            row[1].axhline(break_even(_values(settings, discount, tax)), color=colour, linewidth=0.8, linestyle=":")
    for (i, row), tax in zip(enumerate(axes), settings.tax, strict=True):
        row[0].set_ylabel(f"share of episodes, tax {tax:g}")
        for ax, title in zip(row, titles, strict=True):
            ax.grid(True, color="0.9", linewidth=0.8)
            ax.set_axisbelow(True)
            ax.set_ylim(-0.02, 1.02)
            ax.spines[["top", "right"]].set_visible(False)
            if i == 0:
                ax.set_title(title)
            if i == len(axes) - 1:
                ax.set_xlabel("environment steps")
                ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    note = "dotted: the rate of switching\nabove which the commitment\nis not worth while"
    figure.legend(handles, labels, title=note, title_fontsize="small", frameon=False, loc="outside right upper")
    return figure


def _line(ax: Any, steps: np.ndarray, band: Interval, colour: str, style: str, label: str) -> None:
    ax.plot(steps, band.value, color=colour, linestyle=style, linewidth=1.6, label=label)
    ax.fill_between(steps, band.low, band.high, color=colour, alpha=0.15, linewidth=0)


_PREFERENCES = (
    "Exact values, each choice seen with the clock restarted at it: 1 at the sooner step (less the tax after a switch) "
    "against 1.75 at the later one. They differ where the plan is the later reward and the fresh choice to switch, or "
    "the other way round; 'by the tax' where the tax alone keeps the two apart. An agent that foresees its own switch "
    "compares the sooner reward with the switch, not with the plan."
)
_BEHAVIOUR = (
    "Policies trained by PPO with lam = 1 on whole episodes, so that advantages are returns under the discount itself; "
    "rates are of episodes with sampled actions, brackets 95 % bootstrap intervals over seeds. A reversal commits to "
    "the later reward and then switches, which an undecided policy does by chance in a quarter of its episodes. "
    "'naive' takes the plan at t = 0 for granted, 'foreseeing' knows the second choice. A policy gradient weighs the "
    "first choice by what the policy itself goes on to do, so once it switches more often than the figure's dotted "
    "line says, committing no longer pays, and reversals fade: the slower, the smaller the tax, which is all that "
    "foresight gains. A seed still reverses if it does in more than half of its last episodes: if its first choice has "
    "become all but certain before, hardly an episode tries the other, and the gradient that remains is small."
)

EXPERIMENT = Experiment(
    "preference-reversal",
    "What discounts plan and then choose, exactly, and how often trained policies change their minds.",
    Settings,
    run,
)
