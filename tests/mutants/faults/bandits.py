"""Faults of bandit policies, of the runner, of bounds and of bandits."""

from planting import Fault

FAULTS = (
    Fault(
        "bonus-without-its-root",
        "jaxrl/bandits/policies/ucb.py",
        "sums * inverse + jnp.sqrt(level * inverse)",
        "sums * inverse + level * inverse",
        "tests/bandits/test_bandit_policies.py::test_pulls_the_same_arms_as_a_slow_version[ucb1]",
    ),
    Fault(
        "second-moment-instead-of-the-variance",
        "jaxrl/bandits/policies/ucb.py",
        "variance = jnp.maximum(state.squares.value * inverse - mean * mean, 0.0)",
        "variance = state.squares.value * inverse",
        "tests/bandits/test_bandit_policies.py::test_pulls_the_same_arms_as_a_slow_version[ucb-v]",
    ),
    Fault(
        "horizon-not-shared-among-arms",
        "jaxrl/bandits/policies/ucb.py",
        "/ (pulls.shape[0] * pulls)",
        "/ pulls",
        "tests/bandits/test_bandit_policies.py::test_pulls_the_same_arms_as_a_slow_version[moss]",
    ),
    Fault(
        "level-not-divided-by-the-pulls",
        "jaxrl/bandits/policies/divergence.py",
        "kl_upper(means(state), level / jnp.maximum(state.pulls, 1.0))",
        "kl_upper(means(state), level / jnp.maximum(jnp.sqrt(state.pulls), 1.0))",
        "tests/bandits/test_bandit_policies.py::test_pulls_the_same_arms_as_a_slow_version[kl-ucb]",
    ),
    Fault(
        "window-that-forgets-nothing",
        "jaxrl/bandits/policies/windowed.py",
        "state.pulls + pulled - left,",
        "state.pulls + pulled,",
        "tests/bandits/test_bandit_sampling.py::test_sliding_window_thompson_keeps_the_window",
    ),
    Fault(
        "discount-of-the-pulled-arm-alone",
        "jaxrl/bandits/policies/windowed.py",
        "return ArmWeights(hparams.discount * state.pulls + pulled, hparams.discount * state.sums",
        "return ArmWeights(state.pulls + pulled, hparams.discount * state.sums",
        "tests/bandits/test_bandit_policies.py::test_pulls_the_same_arms_as_a_slow_version[discounted-ucb]",
    ),
    Fault(
        "losses-not-divided-by-their-probability",
        "jaxrl/bandits/policies/exponential.py",
        "return state.add(one_hot(chance, action) * (1 - reward) / chance)",
        "return state.add(one_hot(chance, action) * (1 - reward))",
        "tests/bandits/test_bandit_adversarial.py::test_policies_draw_the_actions_of_slow_versions[exp3]",
    ),
    Fault(
        "rewards-taken-for-losses",
        "jaxrl/bandits/policies/exponential.py",
        "one_hot(chance, action) * (1 - reward) / low",
        "one_hot(chance, action) * reward / low",
        "tests/bandits/test_bandit_adversarial.py::test_policies_draw_the_actions_of_slow_versions[exp3-ix]",
    ),
    Fault(
        "weights-that-vanish",
        "jaxrl/bandits/policies/exponential.py",
        "log = jnp.logaddexp(grown, share)",
        "log = grown",
        "tests/bandits/test_bandit_adversarial.py::test_policies_draw_the_actions_of_slow_versions[exp3-s]",
    ),
    Fault(
        "baseline-subtracted-and-never-added-again",
        "jaxrl/bandits/policies/tsallis.py",
        "(1 - reward - baseline) / chance + baseline)",
        "(1 - reward - baseline) / chance)",
        "tests/bandits/test_bandit_adversarial.py::"
        "test_policies_draw_the_actions_of_slow_versions[tsallis-inf with a baseline]",
    ),
    Fault(
        "posterior-of-twice-the-noise",
        "jaxrl/bandits/policies/thompson_sampling.py",
        "(prior * hparams.mean + noise * state.sums) / precision, jax.lax.rsqrt(precision)",
        "(prior * hparams.mean + noise * state.sums) / precision, 2 * jax.lax.rsqrt(precision)",
        "tests/bandits/test_bandit_sampling.py::"
        "test_thompson_with_normal_rewards_pulls_arms_as_often_as_they_seem_best",
    ),
    Fault(
        "prior-without-its-mean",
        "jaxrl/bandits/policies/thompson_sampling.py",
        "error = pulls * chance + (mode - mean) * precision - sums",
        "error = pulls * chance + mode * precision - sums",
        "tests/bandits/test_bandit_policies.py::test_log_odds_mode_is_the_root",
    ),
    Fault(
        "elimination-by-half-the-width",
        "jaxrl/bandits/policies/identification.py",
        "kept = state.running & (means > jnp.max(means) - 2 * radius)",
        "kept = state.running & (means > jnp.max(means) - radius)",
        "tests/bandits/test_bandit_identification.py::test_successive_elimination_pulls_the_arms_of_the_slow_version",
    ),
    Fault(
        "counts-kept-between-rounds",
        "jaxrl/bandits/policies/identification.py",
        "jnp.where(over, 0.0, leaf)",
        "jnp.where(over, leaf, leaf)",
        "tests/bandits/test_bandit_identification.py::"
        "test_sequential_halving_pulls_the_arms_of_the_slow_version[8-1001]",
    ),
    Fault(
        "more-arms-than-the-budget",
        "jaxrl/bandits/policies/whittle_index.py",
        "return ((rank < budget) & (index > 0)).astype(jnp.int32)",
        "return ((rank <= budget) & (index > 0)).astype(jnp.int32)",
        "tests/bandits/test_bandit_whittle.py::"
        "test_the_highest_indices_are_pulled_within_the_budget_and_none_below_zero",
    ),
    Fault(
        "index-of-the-wrong-sign",
        "jaxrl/bandits/policies/whittle_index.py",
        "fixed, per_subsidy = rewards[1] - rewards[0] + gain[:, 0]",
        "fixed, per_subsidy = rewards[0] - rewards[1] + gain[:, 0]",
        "tests/bandits/test_bandit_whittle.py::test_without_a_future_the_index_is_the_gain_of_a_pull",
    ),
    Fault(
        "regret-against-the-optimum-after-the-pull",
        "jaxrl/bandits/runner.py",
        "optimum, value = env.optimum(before, params), env",
        "optimum, value = env.optimum(after, params), env",
        "tests/bandits/test_bandit_runner.py::test_regret_is_that_of_the_values_at_the_pull",
    ),
    Fault(
        "hindsight-of-the-values-after-the-pull",
        "jaxrl/bandits/runner.py",
        "values = _plus(run.values, before.values)",
        "values = _plus(run.values, after.values)",
        "tests/bandits/test_bandit_runner.py::test_regret_is_that_of_the_values_at_the_pull",
    ),
    Fault(
        "divergence-of-the-other-direction",
        "jaxrl/bandits/bounds/lower.py",
        "rel_entr(means, best) + rel_entr(1 - means, 1 - best)",
        "rel_entr(best, means) + rel_entr(1 - best, 1 - means)",
        "tests/bandits/test_bandit_bounds.py::test_lai_robbins_slope_is_the_sum_of_gaps_over_divergences",
    ),
    Fault(
        "sequence-that-starts-with-its-second-row",
        "envs/bandits/adversarial.py",
        "return BanditState(**fresh(table[0]))",
        "return BanditState(**fresh(table[1 % table.shape[0]]))",
        "tests/envs/test_bandit_envs_changing.py::test_a_sequence_is_paid_out_and_starts_over",
    ),
    Fault(
        "phases-that-do-not-alternate",
        "envs/bandits/adversarial.py",
        "high = state.high ^ over",
        "high = state.high | over",
        "tests/envs/test_bandit_envs_changing.py::test_the_constrained_adversary_keeps_its_gap_through_growing_phases",
    ),
)
