"""Studies that use the public API, each in one short file: `jaxrl experiment NAME`."""

from jaxrl.experiments import (
    bandit_slopes,
    centralised_critic,
    characters,
    crowd_observations,
    crowd_people,
    crowd_planners,
    crowd_rewards,
    estimator_bias,
    mixture_critic,
    partners,
    pathworld,
    preference_reversal,
    preference_sampling,
    standing_still,
    time_limits,
    ugae_vs_monte_carlo,
    value_discounts,
    value_losses,
)
from jaxrl.experiments.study import Experiment, Study, StudyError, run_experiment

__all__ = ["EXPERIMENTS", "Experiment", "Study", "StudyError", "run_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        ugae_vs_monte_carlo.EXPERIMENT,
        estimator_bias.EXPERIMENT,
        mixture_critic.EXPERIMENT,
        centralised_critic.EXPERIMENT,
        partners.EXPERIMENT,
        characters.EXPERIMENT,
        preference_reversal.EXPERIMENT,
        pathworld.EXPERIMENT,
        value_discounts.EXPERIMENT,
        value_losses.EXPERIMENT,
        time_limits.EXPERIMENT,
        standing_still.EXPERIMENT,
        crowd_planners.EXPERIMENT,
        crowd_people.EXPERIMENT,
        crowd_observations.EXPERIMENT,
        crowd_rewards.EXPERIMENT,
        bandit_slopes.EXPERIMENT,
        preference_sampling.EXPERIMENT,
    )
}
