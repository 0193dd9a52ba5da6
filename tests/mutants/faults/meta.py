"""Faults of outer loops over trainings: fitness, seeds, derivatives and learned numbers."""

from planting import Fault

META = "tests/tuning/test_meta.py::"

FAULTS = (
    Fault(
        "failed-training-ranked-highest",
        "jaxrl/tuning/outer/fitness.py",
        "np.where(np.isnan(scores), -np.inf, scores)",
        "np.where(np.isnan(scores), np.inf, scores)",
        META + "test_fitness_equals_counting_and_failures_are_last",
    ),
    Fault(
        "fitness-ranked-over-tasks-together",
        "jaxrl/tuning/outer/fitness.py",
        "-np.inf, scores), axis=0)",
        "-np.inf, scores), axis=None).reshape(scores.shape)",
        META + "test_fitness_equals_counting_and_failures_are_last",
    ),
    Fault(
        "area-without-the-last-evaluation",
        "jaxrl/tuning/outer/fitness.py",
        "returns.mean(axis=0)",
        "returns[:-1].mean(axis=0)",
        META + "test_objectives_are_the_last_return_and_the_mean",
    ),
    Fault(
        "members-with-seeds-of-their-own",
        "jaxrl/tuning/outer/outer_runs.py",
        "np.broadcast_to(inner[:, None], shape).reshape(-1)",
        "np.broadcast_to(inner[:, None], shape).reshape(-1) + np.arange(shape[1]).repeat(shape[2])",
        META + "test_inner_trainings_are_those_of_train",
    ),
    Fault(
        "equal-inner-seeds-in-every-generation",
        "jaxrl/tuning/outer/outer_runs.py",
        "np.random.SeedSequence([seed, generation])",
        "np.random.SeedSequence([seed, 0])",
        META + "test_members_share_seeds_and_come_in_pairs",
    ),
    Fault(
        "descent-along-derivatives",
        "jaxrl/tuning/outer/learners.py",
        "ravel_pytree(theta)[1](-lessons)",
        "ravel_pytree(theta)[1](lessons)",
        META + "test_truncated_gradients_equal_finite_differences_in_float64",
    ),
    Fault(
        "derivative-of-a-training-without-its-learning",
        "jaxrl/tuning/outer/gradient_task.py",
        "returns = run(key, hparams, env_params)",
        "returns = run(key, jax.lax.stop_gradient(hparams), env_params)",
        META + "test_truncated_gradients_equal_finite_differences_in_float64",
    ),
    Fault(
        "derivatives-of-the-first-setting",
        "jaxrl/tuning/outer/gradient_task.py",
        "task.metric, digest(task.algo.hparams)",
        "task.metric",
        META + "test_derivatives_are_those_of_each_setting",
    ),
    Fault(
        "range-on-a-linear-scale",
        "jaxrl/tuning/learned/numbers.py",
        "jnp.exp(math.log(ends.low) + share * (math.log(ends.high) - math.log(ends.low)))",
        "ends.low + share * (ends.high - ends.low)",
        "tests/tuning/test_learned_numbers.py::test_numbers_start_at_their_own_values_and_stay_within_their_ranges",
    ),
)
