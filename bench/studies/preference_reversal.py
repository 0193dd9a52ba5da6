"""Preference reversal: the plans and choices of discounts, and the behaviour of policies trained under them.

Whether a naive agent, which assumes that it will keep to its plan, would change its choice follows from Gamma
alone, and is tabulated exactly. A trained policy can differ. Its first choice is evaluated by the returns
that follow it under its own second choice: early in training, while the second choice is still
undecided, committing to the later reward pays, and once the policy has learned to switch it does
not. `break_even` is the rate of switching in between.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import envs
import jaxrl
from bench.studies.figures import plain_axes
from bench.studies.frames import MISSING
from bench.studies.study import Study, StudyRun
from envs.decision.preference_reversal import PlanValues, PreferenceReversal
from envs.errors import UserValueError
from jaxrl.checks import check_counts
from jaxrl.results.statistics import Interval, bootstrap_interval, mean

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas
    import xarray

COMMITS, SWITCHES = "chose_later_sampled", "switched_sampled"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the study: discounts, rewards and lengths of training."""

    discounts: tuple[str, ...] = (
        "exp:gamma=0.99",
        "exp:gamma=0.9944",
        "exp:gamma=0.996",
        "beta:mu=0.99,eta=0.8",
        "hyperbolic:k=0.01",
        "quasi:beta=0.8,gamma=0.996",
    )
    """Discounts, with one agent for each."""
    tax: tuple[float, ...] = (0.01, 0.1)
    """Costs of switching: 0.01 is the default of the task; a larger cost increases the value of foresight."""
    sooner_step: int = 99
    """Step of the sooner reward of 1, at which the agent may switch."""
    later_step: int = 199
    """Step of the later reward of 1.75, the last of an episode."""
    seeds: int = 16
    """Number of seeds of every setting; equal seeds share their keys."""
    env_steps: int = 384_000
    """Number of environment steps of a run."""
    evals: int = 20
    """Number of evaluations, evenly spaced, the last at the end."""
    eval_episodes: int = 16
    """Number of whole episodes of an evaluation with greedy actions, and again with sampled ones."""
    lr: float = 3e-3
    """Step size of Adam."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; above 0 it maintains exploration of both choices, and rewards indecision."""
    num_envs: int = 32
    """Number of environments of a run; each iteration plays one whole episode in each."""

    def __post_init__(self) -> None:
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


def run(settings: Settings, study: StudyRun) -> None:
    """Tabulate exact preferences, train every agent in one call, then plot the behaviour over training."""
    study.table("preferences", preferences(settings), _PREFERENCES)
    algo = jaxrl.ppo(
        envs.make("preference-reversal"),
        jaxrl.PPOConfig(
            num_envs=settings.num_envs,
            num_steps=settings.later_step + 1,  # whole episodes, so that nothing is bootstrapped with lam = 1
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
    """The exact plan of each discount at the first choice, and its new choice at the second, for each tax."""
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
    """The behaviour of trained policies, a row for each discount and tax.

    Args:
      metrics: Metrics of the training call, with `chose_later_sampled` and `switched_sampled`.
      settings: Settings of the study.

    Returns:
      Rates over episodes with sampled actions: the highest rate of reversals, and its environment step;
      the rates of reversals, of commitments to the later reward, and of switches among those
      commitments at the last evaluation, with intervals over seeds; and the number of seeds that reverse
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

    It is outside [0, 1] if there is no such probability; the value of the commitment is linear in the
    probability, from `later` at 0 to `switching` at 1.
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
    if values.plans_later == values.would_switch:  # holds although the plan was not the later reward
        return "by the tax" if 0 <= values.hold - values.switch <= tax else "yes"
    return "no"


def _runs(metrics: xarray.Dataset, settings: Settings) -> list[tuple[str, float, np.ndarray, np.ndarray]]:
    """Discount, tax, and the rates of commitments and of switches, `[seeds, points]`, of the runs that are finite."""
    rows = []
    for discount in settings.discounts:
        for tax in settings.tax:
            at = metrics.sel({"discount": str(jaxrl.as_discount(discount)), "env.tax": tax})
            pair = [at[name].transpose("seed", "env_step").values.astype(np.float64) for name in (COMMITS, SWITCHES)]
            finite = np.isfinite(pair[0] + pair[1]).all(axis=1)
            rows.append((discount, tax, pair[0][finite], pair[1][finite]))
    return rows


def _rate(values: np.ndarray) -> str:
    estimate = bootstrap_interval(mean, values)
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _figure(metrics: xarray.Dataset, settings: Settings) -> matplotlib.figure.Figure:
    """A row of plots for each tax: commitments, switches among them, and reversals, over training."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    from jaxrl import plotting

    titles = ("commits to the later reward", "switches, if committed", "realised reversals")
    figure = Figure(figsize=(12.4, 2.9 * len(settings.tax) + 0.4), layout="constrained")
    axes = figure.subplots(len(settings.tax), 3, squeeze=False, sharex=True, sharey=True)
    steps = metrics["env_step"].values
    for index, (discount, tax, commits, switches) in enumerate(_runs(metrics, settings)):
        row = axes[settings.tax.index(tax)]
        colour = plotting.COLOURS[index // len(settings.tax) % len(plotting.COLOURS)]
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
            plain_axes(ax)
            ax.set_axisbelow(True)
            ax.set_ylim(-0.02, 1.02)
            if i == 0:
                ax.set_title(title)
            if i == len(axes) - 1:
                ax.set_xlabel("environment steps")
                ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    handles, labels = axes[0, 0].get_legend_handles_labels()
    note = "dotted: the rate of switching\nabove which the commitment\ndoes not pay"
    figure.legend(handles, labels, title=note, title_fontsize="small", frameon=False, loc="outside right upper")
    return figure


def _line(ax: Any, steps: np.ndarray, band: Interval, colour: str, style: str, label: str) -> None:
    ax.plot(steps, band.value, color=colour, linestyle=style, linewidth=1.6, label=label)
    ax.fill_between(steps, band.low, band.high, color=colour, alpha=0.15, linewidth=0)


_PREFERENCES = (
    "Exact values, with delays counted from each choice: 1 at the sooner step (less the tax after a switch) "
    "against 1.75 at the later one. Plan and choice differ if the plan is the later reward and the new choice is to "
    "switch, or vice versa; 'by the tax' if the tax alone causes the difference. An agent that foresees its switch "
    "compares the sooner reward with the switch, not with the plan."
)
_BEHAVIOUR = (
    "Policies trained by PPO with lam = 1 on whole episodes, so that advantages are returns under the discount itself; "
    "rates are of episodes with sampled actions, brackets 95 % bootstrap intervals over seeds. A reversal commits to "
    "the later reward and then switches, which an undecided policy does by chance in a quarter of its episodes. "
    "'naive' assumes that the plan at t = 0 will be kept, 'foreseeing' knows the second choice. A policy gradient "
    "evaluates the first choice under the policy's own second choice, so once the policy switches more often than the "
    "figure's dotted line, committing no longer pays, and reversals become rarer: more slowly for a smaller tax, which "
    "is the whole gain from foresight. A seed still reverses if it reverses in more than half of its last episodes: if "
    "its first choice was nearly deterministic before, few episodes try the other, and the remaining gradient is small."
)

STUDY = Study(
    "preference-reversal",
    "Exact plans and choices under several discounts, and rates of reversal of trained policies.",
    Settings,
    run,
)
