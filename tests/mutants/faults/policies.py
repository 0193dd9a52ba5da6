"""Faults of what one does with trained policies: evaluation, recorded steps, their labels and files."""

from planting import Fault

BEST = "tests/runtime/test_keep_best.py"

FAULTS = (
    Fault(
        "best-policy-the-latest-of-equal-ones",
        "jaxrl/results/best.py",
        "jnp.where(value > best.return_then, one, other)",
        "jnp.where(value >= best.return_then, one, other)",
        f"{BEST}::test_the_best_policy_is_that_of_the_earliest_highest_return",
    ),
    Fault(
        "best-policy-by-sampled-actions",
        "jaxrl/runtime/loop.py",
        'better(run.best, policy, jnp.mean(metrics["return"]), iteration)',
        'better(run.best, policy, jnp.mean(metrics["return_sampled"]), iteration)',
        f"{BEST}::test_the_best_policy_is_that_of_the_earliest_highest_return",
    ),
    Fault(
        "best-policy-evaluated-again-with-the-same-keys",
        "jaxrl/runtime/loop.py",
        "fresh = jax.random.fold_in(jax.random.fold_in(keys(key)[2], iteration), 1)",
        "fresh = jax.random.fold_in(keys(key)[2], iteration)",
        f"{BEST}::test_both_are_evaluated_again_in_the_same_new_episodes",
    ),
    Fault(
        "terminations-that-count-as-truncations",
        "jaxrl/learning/recording.py",
        "truncated=acted.truncated,",
        "truncated=acted.truncated | acted.terminated,",
        "tests/policies/test_collect.py::test_the_last_observation_is_the_one_before_the_reset",
    ),
    Fault(
        "observation-after-the-reset-as-the-next-one",
        "jaxrl/learning/recording.py",
        "next_obs=acted.carry.obs,",
        "next_obs=obs,",
        "tests/policies/test_collect.py::test_the_last_observation_is_the_one_before_the_reset",
    ),
    Fault(
        "random-numbers-of-sampled-episodes-for-greedy-ones",
        "jaxrl/learning/recording.py",
        "if self.greedy else (keys[count:], keys[:count])",
        "if not self.greedy else (keys[count:], keys[:count])",
        "tests/policies/test_collect.py::test_episodes_are_those_of_evaluate[False-return_sampled]",
    ),
    Fault(
        "no-reset-after-the-end-of-an-episode",
        "jaxrl/learning/recording.py",
        "jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)",
        "old",
        "tests/policies/test_collect.py::test_the_last_observation_is_the_one_before_the_reset",
    ),
    Fault(
        "final-observation-one-step-early",
        "jaxrl/policies/labelling.py",
        "np.expand_dims(lengths - 1,",
        "np.expand_dims(lengths - 2,",
        "tests/policies/test_collect.py::test_the_last_observation_is_the_one_before_the_reset",
    ),
    Fault(
        "steps-after-the-end-that-look-taken",
        "jaxrl/policies/labelling.py",
        "array = _padded(leaf, alive) if whole else leaf",
        "array = leaf",
        "tests/policies/test_collect.py::test_the_last_observation_is_the_one_before_the_reset",
    ),
    Fault(
        "uniform-share-of-forbidden-actions",
        "jaxrl/algorithms/action_values.py",
        "allowed = jnp.ones_like(q) if mask is None else mask.astype(jnp.float32)",
        "allowed = jnp.ones_like(q)",
        "tests/policies/test_scores.py::test_probabilities_of_an_epsilon_greedy_policy_respect_the_mask",
    ),
    Fault(
        "parameters-of-the-first-setting-for-all",
        "jaxrl/policies/runs.py",
        "setting=setting: leaf[setting], result.env_params)",
        "setting=setting: leaf[0], result.env_params)",
        "tests/policies/test_evaluate.py::test_each_run_meets_the_parameters_of_its_training",
    ),
    Fault(
        "curriculum-at-its-start",
        "jaxrl/policies/crowds.py",
        "return params if env_steps is None else",
        "return params if env_steps is not None else",
        "tests/policies/test_evaluate.py::test_a_curriculum_is_at_its_end",
    ),
    Fault(
        "curriculum-at-the-best-evaluation",
        "jaxrl/results/result.py",
        "*labels, env_params, env_steps, training_env_steps)",
        "*labels, env_params, env_steps)",
        "tests/policies/test_evaluate.py::test_a_policy_of_the_best_evaluation_meets_the_end_of_a_curriculum",
    ),
    Fault(
        "defaults-of-the-training-in-another-world",
        "envs/wrappers/wrapper.py",
        '        return np.asarray(own, array.dtype) if hasattr(value, "dtype") else own\n',
        "        return value\n",
        "tests/policies/test_evaluate.py::test_parameters_left_at_their_defaults_are_those_of_another_environment",
    ),
    Fault(
        "a-mixture-that-the-environment-rejects",
        "envs/wrappers/wrapper.py",
        "    except ValueError:\n        return params\n",
        "    except ValueError:\n        return mixture\n",
        "tests/policies/test_evaluate.py::test_a_mixture_that_the_environment_rejects_is_replaced_by_the_training",
    ),
    Fault(
        "swept-defaults-are-not-kept",
        "jaxrl/policies/crowds.py",
        'np.nan if f"env.{name}" in swept else leaf',
        "leaf",
        "tests/policies/test_evaluate.py::test_swept_parameters_are_kept_in_another_environment",
    ),
    Fault(
        "nan-observations-of-lists",
        "jaxrl/results/observations.py",
        "count = sum(int(np.isnan(leaf).sum())",
        "count = sum(0 * int(np.isnan(leaf).sum())",
        "tests/policies/test_scores.py::test_other_observations_are_refused",
    ),
    Fault(
        "episodes-of-minari-without-their-last-observation",
        "jaxrl/policies/saving.py",
        "np.concatenate([first, then[-1:]])",
        "np.concatenate([first, first[-1:]])",
        "tests/policies/test_saving_steps.py::test_each_episode_is_one_of_minari",
    ),
)
