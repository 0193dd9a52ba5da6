"""Studies that use the public API, each in one short file: `python -m bench.studies NAME`."""

from bench.studies import (
    bandit_slopes,
    benchmark_claims,
    centralised_critic,
    characters,
    crowd_observations,
    crowd_people,
    crowd_planners,
    crowd_rewards,
    estimator_bias,
    finite_time_weights,
    known_optima,
    learned_discounts,
    learned_drift,
    level_replay,
    memories,
    mixture_critic,
    partners,
    pathworld,
    preference_reversal,
    preference_sampling,
    search_bias,
    standing_still,
    time_limits,
    ugae_vs_monte_carlo,
    value_discounts,
    value_losses,
    varied_worlds,
)
from bench.studies.study import Study, StudyError, StudyRun, run_study

__all__ = ["STUDIES", "Study", "StudyError", "StudyRun", "run_study"]

STUDIES: dict[str, Study] = {
    each.name: each
    for each in (
        ugae_vs_monte_carlo.STUDY,
        estimator_bias.STUDY,
        finite_time_weights.STUDY,
        known_optima.STUDY,
        learned_discounts.STUDY,
        learned_drift.STUDY,
        mixture_critic.STUDY,
        centralised_critic.STUDY,
        partners.STUDY,
        characters.STUDY,
        preference_reversal.STUDY,
        pathworld.STUDY,
        value_discounts.STUDY,
        value_losses.STUDY,
        time_limits.STUDY,
        varied_worlds.STUDY,
        level_replay.STUDY,
        standing_still.STUDY,
        crowd_planners.STUDY,
        crowd_people.STUDY,
        crowd_observations.STUDY,
        crowd_rewards.STUDY,
        bandit_slopes.STUDY,
        benchmark_claims.STUDY,
        search_bias.STUDY,
        memories.STUDY,
        preference_sampling.STUDY,
    )
}
