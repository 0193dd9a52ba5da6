"""Faults of outer loops over trainings: fitness, seeds, derivatives and learned numbers."""

from planting import Fault

META = "tests/tuning/test_meta.py::"
RANGES = "tests/tuning/test_meta_ranges.py::"
TABLE = "tests/tuning/test_meta_table.py::"

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
    Fault(
        "end-of-a-range-unchecked",
        "jaxrl/tuning/learned/numbers.py",
        "for end in (ends.low, ends.high):",
        "for end in (ends.low,):",
        "tests/tuning/test_learned_numbers.py::test_ranges_must_fit",
    ),
    Fault(
        "member-outside-a-range-scored-as-the-start",
        "jaxrl/tuning/outer/inner_task.py",
        "np.where(outside, np.nan, objective_of(np.stack(returns), self.objective))",
        "objective_of(np.stack(returns), self.objective)",
        RANGES + "test_members_outside_of_ranges_are_counted_and_left_out_of_means",
    ),
    Fault(
        "second-half-of-members-unchecked",
        "jaxrl/tuning/outer/probes.py",
        "for each in (search(begin, middle), search(middle, end))",
        "for each in (search(begin, middle),)",
        RANGES + "test_thetas_outside_of_ranges_are_marked_and_fail",
    ),
    Fault(
        "table-of-an-area-at-the-end",
        "jaxrl/tuning/outer/meta_table.py",
        "objective_of(np.moveaxis(result.values(metric), -1, 0), objective)",
        'objective_of(np.moveaxis(result.values(metric), -1, 0), "final")',
        TABLE + "test_the_table_has_the_value_of_the_objective",
    ),
    Fault(
        "start-of-each-shard-as-learned",
        "jaxrl/tuning/outer/meta_table.py",
        "np.concatenate([values[1:] for values in each])",
        "np.concatenate(each)[1:]",
        TABLE + "test_the_table_of_shards_is_that_of_the_whole",
    ),
    Fault(
        "derivative-outside-a-range-taken-at-the-start",
        "jaxrl/tuning/outer/gradient_task.py",
        "failed = outside | ~",
        "failed = ~",
        RANGES + "test_a_generation_of_members_outside_of_ranges_ends_no_call",
    ),
    Fault(
        "table-of-an-earlier-comparison",
        "jaxrl/tuning/outer/meta_table.py",
        'result.metrics.attrs.get("learned_thetas") != digest_of(learned)',
        'result.metrics.attrs.get("learned_thetas") is None',
        TABLE + "test_results_of_other_thetas_or_of_some_tasks_are_no_table",
    ),
    Fault(
        "table-of-shards-of-different-calls",
        "jaxrl/tuning/outer/meta_table.py",
        "difference(_described(first, others), _described(outer, results))",
        "difference(_described(first, others), _described(first, others))",
        TABLE + "test_directories_of_other_calls_are_refused",
    ),
    Fault(
        "hazard-rate-of-0-beyond-the-horizon",
        "jaxrl/tuning/learned/discount.py",
        "jnp.interp(jnp.float32(delays), jnp.float32(knots), theta)",
        "jnp.interp(jnp.float32(delays), jnp.float32(knots), theta, right=-jnp.inf)",
        "tests/tuning/test_learned_discount.py::test_a_curve_is_that_of_a_hazard_rate",
    ),
)
