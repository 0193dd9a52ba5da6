"""The parts of algorithms reject arrays of wrong shapes and name the argument."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from leaf_functions import assert_complete, assert_refused

from envs.base import spaces
from jaxrl.learning import (
    acting,
    action_heads,
    advantages,
    asymmetric,
    beliefs,
    cells,
    composites,
    critics,
    drift,
    episodes,
    evaluation,
    exploration,
    frames,
    levels,
    linear_cells,
    losses,
    minibatches,
    networks,
    normalisation,
    optimisers,
    output_networks,
    priorities,
    q_targets,
    recording,
    recurrent,
    relation,
    replay,
    rollout,
    sequence_replay,
    sequences,
    shards,
    value_losses,
)
from jaxrl.learning.action_heads import action_head

UNUSED: Any = None
RECORDER = recording.Recorder(UNUSED, UNUSED, None, 1, False, True)


def logits(*shape: int) -> Any:
    return {"logits": np.ones(shape, np.float32)}


TWO_KEYS: Any = np.zeros((2, 2, 2), np.uint32)
SCALAR: Any = np.float32(0.2)


def corrected(log_ratio: Any, weight: Any, clip_eps: Any) -> Any:
    """Term of a drift of two units."""
    return drift.drift_correction(drift.Drift.initial(2), log_ratio, log_ratio, weight, clip_eps)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def flags(*shape: int) -> Any:
    return np.zeros(shape, bool)


PARTS = shards.EnvShards("devices", 2)
STATISTICS = normalisation.init_statistics({"x": ones(3)})
DISCRETE, BOX = action_head(spaces.Discrete(3)), action_head(spaces.Box(-1.0, 1.0, (3,)))
SEVERAL = action_head(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(1)]))
STEPS = rollout.Transition(None, None, ones(4, 2), flags(3), flags(3), flags(4, 2), flags(4, 2), None, None)
SINGLE, MIXTURE = critics.single_critic(), critics.mixture_critic(3)
DISCOUNT = MIXTURE.prepare("beta:0.9,0.5", 4, None)
ASYMMETRIC = asymmetric.AsymmetricRecurrentActorCritic(
    networks.MLPActorCritic(None), cells.GRU(3), asymmetric.AsymmetricHeads(2), networks.MLPActorCritic(None), "apart"
)
NETWORK = recurrent.RecurrentActorCritic(networks.MLPActorCritic(None), cells.GRU(3), recurrent.Heads(2))
RELATION = relation.RelationActorCritic(2)
LEVELS = levels.init_levels(4, jax.random.split(jax.random.key(0), 3))._replace(age=ones(3))
BELIEF = beliefs.Belief((3, 2), (True, False))
ROWS = replay.Rows(jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32), ones(2))
FRAMES = frames.FrameRing.of(2, 0, 2, 4, 3)
PRIORITIES = priorities.init_priorities(9)
WALK = exploration.Walk(jnp.ones((4, 2)), jnp.zeros(4, bool))
REMEMBERING = recurrent.RecurrentNetwork(networks.MLPActorCritic(None), cells.GRU(3), output_networks.PolicyHead(2))
SEQUENCES = sequence_replay.SequenceReplay(3, 1, 2, 2, 2, 8, 0)
STEPS_IN_ORDER = sequences.Sequences(ones(4, 2, 5), flags(4, 2), {"hidden": ones(3, 3)})
TWO_SLOTS = replay.Ring(ones(2), ones(2))
SQUARED = value_losses.value_loss("squared", 1)

CALLS: list[tuple[str, str, Callable[[], Any]]] = [
    ("losses.weighted_mean", "weight", lambda: losses.weighted_mean(ones(4, 2), ones(4))),
    ("losses.standardise", "weight", lambda: losses.standardise(ones(4, 2), ones(4))),
    ("losses.policy_gradient", "advantage", lambda: losses.policy_gradient(ones(4), ones(4, 1), ones(4))),
    ("losses.surrogate", "weight", lambda: losses.surrogate(ones(4), ones(4), ones(1))),
    ("losses.quadratic_surrogate", "weight", lambda: losses.quadratic_surrogate(ones(4), ones(4), ones(1), SCALAR)),
    ("losses.quadratic_surrogate", "eps", lambda: losses.quadratic_surrogate(ones(4), ones(4), ones(4), ones(4))),
    ("losses.clipped_surrogate", "advantage", lambda: losses.clipped_surrogate(ones(4), ones(4, 1), ones(4), SCALAR)),
    ("losses.clipped_surrogate", "clip_eps", lambda: losses.clipped_surrogate(ones(4), ones(4), ones(4), ones(4))),
    (
        "losses.clipped_value_loss",
        "target",
        lambda: losses.clipped_value_loss(ones(4), ones(4), ones(4, 1), ones(4), SCALAR),
    ),
    (
        "losses.clipped_value_loss",
        "clip_eps",
        lambda: losses.clipped_value_loss(ones(4), ones(4), ones(4), ones(4), ones(1)),
    ),
    ("losses.approximate_kl", "log_ratio", lambda: losses.approximate_kl(ones(4), ones(1))),
    ("losses.share_without_effect", "prevented", lambda: losses.share_without_effect(flags(4, 2), False)),
    ("losses.explained_variance", "target", lambda: losses.explained_variance(ones(4), ones(4, 1), ones(4))),
    (
        "asymmetric.apply_centralised",
        "global_obs",
        lambda: asymmetric.apply_centralised(UNUSED, UNUSED, ones(3, 2, 4), ones(4, 5), 2, 1),
    ),
    (
        "critics.mixture_critic.estimate",
        "next_value",
        lambda: MIXTURE.estimate(DISCOUNT, SCALAR, ones(4, 3), ones(4, 3, 3), ones(4, 3, 1), flags(4), flags(4)),
    ),
    (
        "critics.mixture_critic.loss",
        "weight",
        lambda: MIXTURE.loss(DISCOUNT, ones(4, 3), ones(4, 3), ones(4, 3), ones(3), SCALAR),
    ),
    ("critics.mixture_critic.whole", "value", lambda: MIXTURE.whole(DISCOUNT, ones(4, 1))),
    (
        "critics.single_critic.loss",
        "old_value",
        lambda: SINGLE.loss(DISCOUNT, ones(4), ones(3), ones(4), ones(4), SCALAR),
    ),
    (
        "advantages._mixture_targets",
        "weights",
        lambda: advantages._mixture_targets(ones(2), ones(3), SCALAR, ones(4), ones(4), flags(4)),
    ),
    (
        "advantages._mixture_targets",
        "bootstrap",
        lambda: advantages._mixture_targets(ones(2), ones(2), SCALAR, ones(4), ones(1), flags(4)),
    ),
    (
        "advantages._lag_targets",
        "curve",
        lambda: advantages._lag_targets(ones(4), SCALAR, ones(4), ones(4), flags(4)),
    ),
    ("advantages._finite_time", "size, last", lambda: advantages._finite_time(SCALAR, ones(4), flags(4, 1))),
    ("advantages._finite_time", "lam", lambda: advantages._finite_time(ones(4), ones(4), flags(4))),
    (
        "advantages._lag_targets",
        "last",
        lambda: advantages._lag_targets(ones(5), SCALAR, ones(4), ones(4), flags(4, 1)),
    ),
    ("shards.own", "axis", lambda: shards.own({"x": ones(4)}, PARTS, axis=1)),
    ("shards.own", "shards.count", lambda: shards.own({"x": ones(3)}, PARTS)),
    ("shards.own_key", "key", lambda: shards.own_key(TWO_KEYS, PARTS)),
    ("normalisation.update_statistics", "batch", lambda: update({"x": ones(4, 2)}, ones(4))),
    ("normalisation.update_statistics", "weight", lambda: update({"x": ones(4, 3)}, ones(2))),
    ("normalisation.normalise", "sample", lambda: normalisation.normalise(STATISTICS, {"x": ones(4, 1)}, 10.0)),
    ("normalisation.normalise", "clip", lambda: normalisation.normalise(STATISTICS, {"x": ones(3)}, ones(3))),
    ("action_heads.discrete.log_prob", "logits", lambda: DISCRETE.log_prob(logits(5, 1), None, flags(5))),
    ("action_heads.discrete.log_prob", "raw", lambda: DISCRETE.log_prob(logits(5, 3), None, flags(5, 1))),
    ("action_heads.discrete.entropy", "logits", lambda: DISCRETE.entropy(logits(5, 2), None)),
    ("action_heads.discrete.kl", "others", lambda: DISCRETE.kl(logits(5, 3), logits(5, 2), None)),
    ("action_heads.several.kl", "logits", lambda: SEVERAL.kl(logits(5, 3), logits(5, 4), None)),
    ("action_heads.box.kl", "others", lambda: BOX.kl({"mean": ones(5, 3)}, {"mean": ones(5, 1)}, None)),
    ("action_heads.discrete.mode", "logits", lambda: DISCRETE.mode(logits(5, 2), None)),
    ("action_heads.discrete.mode", "mask", lambda: DISCRETE.mode(logits(5, 3), flags(5, 1))),
    ("action_heads.discrete.sample", "noise", lambda: DISCRETE.sample(logits(5, 3), None, ones(5, 1))),
    ("action_heads.several.mode", "logits", lambda: SEVERAL.mode(logits(5, 4), None)),
    ("action_heads.several.sample", "noise", lambda: SEVERAL.sample(logits(5, 3), None, ones(5, 4))),
    ("action_heads.several.log_prob", "raw", lambda: SEVERAL.log_prob(logits(5, 3), None, flags(5, 3))),
    ("action_heads.box.log_prob", "raw", lambda: BOX.log_prob(BOX.scores(ones(5, 3), ones(3)), None, ones(5, 1))),
    ("action_heads.box.scores", "log_std", lambda: BOX.scores(ones(5, 3), ones(2))),
    ("action_heads.box.scores", "outputs", lambda: BOX.scores(ones(5, 1), ones(3))),
    ("action_heads.box.sample", "noise", lambda: BOX.sample(BOX.scores(ones(5, 3), ones(3)), None, ones(5, 1))),
    ("action_heads.box.to_env", "raw", lambda: BOX.to_env(ones(5, 1))),
    ("rollout.step_once", "key", lambda: rollout.step_once(UNUSED, TWO_KEYS, UNUSED, UNUSED, UNUSED)),
    ("rollout.reset_all", "key", lambda: rollout.reset_all(UNUSED, TWO_KEYS, UNUSED, 3)),
    ("rollout.first_keys", "key", lambda: rollout.first_keys(TWO_KEYS, 3)),
    ("rollout.fresh_keys", "key", lambda: rollout.fresh_keys(TWO_KEYS, (3,))),
    ("composites.Curve.at", "share", lambda: composites.Curve([0.0, 1.0]).at(ones(3))),
    ("drift.drift_features", "advantage", lambda: drift.drift_features(ones(3), ones(4))),
    ("drift.drift_correction", "weight", lambda: corrected(ones(3), ones(4), SCALAR)),
    ("drift.drift_correction", "clip_eps", lambda: corrected(ones(3), ones(3), ones(1))),
    ("levels.init_levels", "keys", lambda: levels.init_levels(4, jax.random.key(0))),
    ("levels.replay_chances", "age", lambda: levels.replay_chances(ones(4), ones(3), SCALAR, SCALAR)),
    ("levels.draw_levels", "levels", lambda: levels.draw_levels(LEVELS, TWO_KEYS, 2, SCALAR, SCALAR, SCALAR)),
    ("levels.mean_score", "levels", lambda: levels.mean_score(LEVELS._replace(score=ones(4, 1)))),
    ("levels.scored", "active", lambda: played(active=flags(4, 2))),
    ("levels.scored", "done", lambda: played(done=flags(4, 2))),
    ("rollout.rollout", "carry", lambda: roll(jax.random.key(0), ones(2), ones(4))),
    ("rollout.rollout", "noise", lambda: roll(jax.random.key(0), ones(3), ones(5, 3))),
    ("rollout.over_agents", "flag", lambda: rollout.over_agents(flags(4), ones(3, 2))),
    ("rollout.remembered", "memory", lambda: rollout.remembered(ones(4, 2), ones(2), flags(3))),
    ("minibatches.row_minibatches", "samples", lambda: minibatches.row_minibatches(TWO_KEYS, (ones(4), ones(3)), 2)),
    (
        "minibatches.sequence_minibatches",
        "samples",
        lambda: minibatches.sequence_minibatches(TWO_KEYS, (ones(4, 2), ones(4, 3)), 2),
    ),
    (
        "minibatches.over_epochs",
        "key",
        lambda: minibatches.over_epochs(TWO_KEYS, 2, lambda key: (), lambda carry, samples: (carry, ()), ()),
    ),
    ("networks.residual_blocks", "features", lambda: networks.residual_blocks(ones(3, 4), (8,), "relu", "trunk")),
    ("beliefs.Belief.split", "outputs", lambda: BELIEF.split(ones(5, 3))),
    ("beliefs.Belief.mean", "outputs", lambda: BELIEF.mean(ones(5, 3))),
    ("beliefs.Belief.uncertainty", "outputs", lambda: BELIEF.uncertainty(ones(5, 3))),
    ("beliefs.Belief.log_prob", "behaviour", lambda: BELIEF.log_prob(ones(5, 7), (flags(4), ones(5, 2)))),
    ("beliefs.constant_belief", "constant", lambda: beliefs.constant_belief({}, flags(2))),
    (
        "beliefs.BelievingHeads.__call__",
        "features",
        lambda: beliefs.BelievingHeads(recurrent.Heads(2), BELIEF, True).init(jax.random.key(0), ones(3, 4)),
    ),
    ("recurrent.Heads.__call__", "features", lambda: recurrent.Heads(2).init(jax.random.key(0), ones(3, 4))),
    (
        "asymmetric.AsymmetricHeads.__call__",
        "features",
        lambda: asymmetric.AsymmetricHeads(2).init(jax.random.key(0), ones(3, 4)),
    ),
    (
        "asymmetric.AsymmetricRecurrentActorCritic.unroll",
        "reset",
        lambda: ASYMMETRIC.unroll({}, asymmetric.Seen(ones(4, 2)), ones(3), flags(4, 2)),
    ),
    ("recurrent.RecurrentActorCritic.unroll", "reset", lambda: NETWORK.unroll({}, ones(4, 2), ones(3), flags(4, 2))),
    ("recurrent.unroll_over", "obs", lambda: recurrent.unroll_over(NETWORK, {}, ones(3, 2), ones(2, 3), flags(4, 2))),
    ("recurrent.unroll_over", "memory", lambda: recurrent.unroll_over(NETWORK, {}, ones(4, 2), ones(3), flags(4, 2))),
    (
        "recurrent.unroll_by_steps",
        "inputs",
        lambda: recurrent.unroll_by_steps(cells.GRU(3), {}, ones(3, 2), {"hidden": ones(3)}, flags(4)),
    ),
    *(
        row
        for cell in cells.CELLS.values()
        for row in (
            (
                f"{cell.__module__.rpartition('.')[2]}.{cell.__name__}.__call__",
                "features",
                lambda cell=cell: cell(4).init(jax.random.key(0), ones(4, 2), cell(4).initial_memory()),
            ),
            (
                f"{cell.__module__.rpartition('.')[2]}.{cell.__name__}.unroll",
                "reset",
                lambda cell=cell: cell(4).unroll({"params": {}}, ones(4, 2), cell(4).initial_memory(), flags(3)),
            ),
        )
    ),
    (
        "cells.FlaxCell.__call__",
        "features",
        lambda: cells.FlaxCell(nn.GRUCell(3)).init(jax.random.key(0), ones(4, 2), ones(3)),
    ),
    ("linear_cells.linear_recurrence", "decay", lambda: recur(ones(2), ones(4, 2), ones(3))),
    ("linear_cells.linear_recurrence", "decay", lambda: recur(ones(3, 2), ones(4, 2), ones(2))),
    ("linear_cells.linear_recurrence", "inputs", lambda: recur(ones(2), ones(3, 2), ones(2))),
    ("linear_cells.linear_recurrence", "start", lambda: recur(ones(2), ones(4, 2), ones(2, 2))),
    ("rollout.agents_ended", "done", lambda: rollout.agents_ended(ones(3), flags(3), {})),
    ("rollout.episode_ends", "terminated", lambda: rollout.episode_ends(STEPS)),
    (
        "rollout.value_ends",
        "agent_terminated",
        lambda: rollout.value_ends(STEPS._replace(agent_terminated=flags(4)), "bootstrap"),
    ),
    (
        "optimisers.LearnedOptimiser.at",
        "share",
        lambda: optimisers.LearnedOptimiser.initial(2).at(jnp.ones(2)),
    ),
    ("optimisers.optimiser_features", "size", lambda: of_parameters(size=ones(4))),
    ("optimisers.optimiser_features", "momenta", lambda: of_parameters(momenta=ones(2, 3))),
    ("optimisers.optimiser_features", "eps", lambda: of_parameters(eps=ones(1))),
    ("optimisers.linear_share", "env_steps", lambda: optimisers.linear_share(ones(2), SCALAR, SCALAR)),
    ("optimisers.tenth_share", "env_steps", lambda: optimisers.tenth_share(ones(2), SCALAR)),
    ("losses.kept_means", "metrics", lambda: losses.kept_means({"loss": ones(3)}, flags(2))),
    ("networks.CNNActorCritic.__call__", "obs", lambda: networks.CNNActorCritic(2).init(jax.random.key(0), ones(4, 4))),
    (
        "normalisation.scale_rewards",
        "reward",
        lambda: normalisation.scale_rewards(
            normalisation.init_reward_scale((2,)), ones(4, 2), flags(4, 1), flags(4, 2), SCALAR, SCALAR
        ),
    ),
    ("rollout.rollout", "key", lambda: roll(TWO_KEYS, ones(3), ones(4))),
    ("evaluation.evaluate", "key", lambda: evaluation.evaluate(UNUSED, UNUSED, UNUSED, UNUSED, TWO_KEYS, 3, UNUSED)),
    (
        "evaluation.evaluate_episodes",
        "key",
        lambda: evaluation.evaluate_episodes(UNUSED, UNUSED, UNUSED, UNUSED, TWO_KEYS, 3, UNUSED),
    ),
    ("acting.begin", "key", lambda: acting.begin(UNUSED, UNUSED, UNUSED, UNUSED, TWO_KEYS, 3)),
    ("acting.act_once", "key", lambda: acting.act_once(UNUSED, UNUSED, UNUSED, UNUSED, TWO_KEYS, UNUSED, (), True)),
    ("recording.Recorder.start", "key", lambda: RECORDER.start(UNUSED, UNUSED, TWO_KEYS)),
    ("recording.Recorder.record", "key", lambda: RECORDER.record(UNUSED, UNUSED, TWO_KEYS, UNUSED, 0, 1)),
    ("evaluation.finite_only", "metrics", lambda: evaluation.finite_only({"return": ones(2, 1)}, {}, {})),
    ("evaluation.finite_only", "others", lambda: evaluation.finite_only({}, {}, {"loss": ones(2)})),
    ("networks.image_of", "pixels", lambda: networks.image_of(ones(4, 4))),
    ("networks.convolutions", "image", lambda: networks.convolutions(ones(4, 4), (2,), (1,), "relu", "trunk")),
    ("networks.orthogonal", "key", lambda: networks.orthogonal(TWO_KEYS, 2, 3)),
    ("relation.RelationActorCritic.__call__", "neighbours", lambda: RELATION.apply({}, around(ones(4), ones(4)))),
    (
        "relation.RelationActorCritic.__call__",
        "neighbours_present",
        lambda: RELATION.apply({}, around(ones(4, 2), ones(3))),
    ),
    ("relation.largest_product", "kernel", lambda: relation.largest_product(ones(3, 2), flags(3), ones(2))),
    ("relation.largest_product", "present", lambda: relation.largest_product(ones(3, 2), flags(2), ones(2, 4))),
    ("replay.Ring.at", "iteration", lambda: replay.Ring.at(np.zeros(2, np.int32), 4, 2, 8)),  # pyright: ignore[reportArgumentType]
    ("replay.Ring.at", "capacity", lambda: replay.Ring.at(jnp.int32(0), 4, 2, 7)),
    ("replay.write", "start", lambda: replay.write(ones(4, 2), ones(1, 2), ones(1))),
    ("replay.write", "steps", lambda: replay.write(ones(4, 2), ones(1, 3), SCALAR)),
    ("replay.write_slice", "new", lambda: replay.write_slice(ones(4, 2), ones(4), SCALAR)),
    ("replay.uniform_rows", "filled", lambda: replay.uniform_rows(UNUSED, ones(2), 1, 1)),
    ("replay.last_slots", "rows", lambda: replay.last_slots(STEPS, ROWS._replace(env=ones(2, 1)), SCALAR, 1)),
    ("replay.last_slots", "newest", lambda: replay.last_slots(STEPS, ROWS, ones(2), 1)),
    ("frames.FrameRing.init", "obs", lambda: FRAMES.init({"a": ones(2, 3), "b": ones(3, 3)})),
    (
        "frames.FrameRing.write",
        "steps.truncated",
        lambda: FRAMES.write(UNUSED, STEPS._replace(truncated=flags(2)), UNUSED, SCALAR),
    ),
    ("frames.FrameRing.write", "start", lambda: FRAMES.write(UNUSED, STEPS, UNUSED, ones(2))),
    ("frames.FrameRing.prefilled", "steps", lambda: FRAMES.prefilled(UNUSED, STEPS, UNUSED)),
    (
        "frames.FrameRing.read",
        "rows",
        lambda: FRAMES.read(UNUSED, ROWS._replace(env=ones(2, 1)), None, STEPS, SCALAR, SCALAR),
    ),
    ("frames.FrameRing.read", "newest", lambda: FRAMES.read(UNUSED, ROWS, None, STEPS, ones(2), SCALAR)),
    ("priorities.open_priorities", "keep", lambda: priorities.open_priorities(PRIORITIES, flags(9), flags(8))),
    ("recurrent.RecurrentNetwork.unroll", "reset", lambda: REMEMBERING.unroll(UNUSED, UNUSED, UNUSED, flags(2, 2))),
    ("sequences.in_order", "steps", lambda: sequences.in_order(ones(3, 2), flags(2, 2), UNUSED)),
    ("sequences.unroll_rows", "memory", lambda: sequences.unroll_rows(REMEMBERING, UNUSED, STEPS_IN_ORDER)),
    (
        "sequences.after_windows",
        "last",
        lambda: sequences.after_windows(REMEMBERING, UNUSED, dataclasses.replace(STEPS_IN_ORDER, last=ones(3))),
    ),
    (
        "sequences.recalled_outputs",
        "memory",
        lambda: sequences.recalled_outputs(REMEMBERING, UNUSED, sequences.Recalled(ones(4, 5), ones(3, 3)), 1),
    ),
    ("sequence_replay.SequenceReplay.complete", "ring", lambda: SEQUENCES.complete(TWO_SLOTS)),
    ("sequence_replay.SequenceReplay.opened", "before", lambda: SEQUENCES.opened(PRIORITIES, TWO_SLOTS, 2)),
    ("sequence_replay.SequenceReplay.draw", "ring", lambda: SEQUENCES.draw(UNUSED, TWO_SLOTS, None, None)),
    ("sequence_replay.SequenceReplay.steps", "rows", lambda: SEQUENCES.steps(STEPS, ROWS._replace(env=ones(2, 1)))),
    ("sequence_replay.SequenceReplay.learned", "rows", lambda: SEQUENCES.learned(ROWS._replace(env=ones(2, 1)))),
    ("sequence_replay.SequenceReplay.written", "end", lambda: SEQUENCES.written(UNUSED, UNUSED, ones(2))),
    ("replay.window", "rows", lambda: replay.window(STEPS, ROWS._replace(env=ones(2, 1)), SCALAR, 1)),
    ("replay.window", "newest", lambda: replay.window(STEPS, ROWS, ones(2), 1)),
    ("priorities.write_priorities", "start", lambda: priorities.write_priorities(PRIORITIES, ones(2), 2)),
    ("priorities.update_priorities", "row", lambda: priorities.update_priorities(PRIORITIES, ones(2), ones(3))),
    (
        "priorities.prioritised_rows",
        "beta",
        lambda: priorities.prioritised_rows(UNUSED, PRIORITIES, jnp.int32(1), 1, 1, ones(2)),
    ),
    ("action_heads.sample_squashed", "noise", lambda: action_heads.sample_squashed(ones(4, 2), ones(4, 2), ones(4))),
    ("exploration.correlated", "noise", lambda: exploration.correlated(WALK, ones(4), ones(4))),
    ("exploration.correlated", "correlation", lambda: exploration.correlated(WALK, ones(4, 2), ones(2))),
    ("value_losses.expected", "atoms", lambda: value_losses.expected(ones(4, 2), ones(4))),
    ("value_losses.ValueLoss.value", "outputs", lambda: SQUARED.value(ones(4, 2), value_losses.Scale())),
    ("value_losses.projection", "place", lambda: value_losses.projection(ones(4, 2), ones(4), 3)),
    ("value_losses._error", "outputs", lambda: SQUARED.loss(ones(4, 2), ones(4, 1), ones(4, 1), value_losses.Scale())),
    ("q_targets.mixture_values", "shares", lambda: q_targets.mixture_values(ones(4, 2), ones(3))),
    ("q_targets.masked_values", "mask", lambda: q_targets.masked_values(ones(4, 2), flags(4))),
    ("q_targets.of_branches", "values", lambda: q_targets.of_branches(ones(4, 6), (3, 2))),
    ("q_targets.of_actions", "index", lambda: q_targets.of_actions(ones(4, 5), jnp.zeros(4, int), None, -1)),
    ("q_targets.bootstrap_actions", "shares", lambda: q_targets.bootstrap_actions(ones(4, 2), ones(3), None, "own")),
    ("q_targets.lambda_targets", "sizes", lambda: along(sizes=ones(1))),
    ("q_targets.lambda_targets", "next_values", lambda: along(next_values=ones(4, 2))),
    ("q_targets.lambda_targets", "done", lambda: along(done=flags(4))),
    ("q_targets.soft_values", "temperature", lambda: q_targets.soft_values(ones(4, 2), None, ones(2))),
    ("q_targets.n_step_targets", "counts", lambda: steps_ahead(counts=flags(4, 3))),
    ("q_targets.n_step_targets", "sizes", lambda: steps_ahead(sizes=ones(1))),
    ("q_targets.n_step_targets", "next_atoms", lambda: steps_ahead(next_atoms=ones(4, 2))),
    (
        "output_networks.QNetwork.__call__",
        "features",
        lambda: output_networks.QNetwork(networks.MLPActorCritic(1), 2, 1).init(jax.random.key(0), ones(3)),
    ),
    (
        "output_networks.PolicyHead.__call__",
        "features",
        lambda: output_networks.PolicyHead(2).init(jax.random.key(0), ones(3, 4)),
    ),
    (
        "episodes.population_episodes",
        "keys",
        lambda: episodes.population_episodes(UNUSED, UNUSED, UNUSED, UNUSED, TWO_KEYS, UNUSED),
    ),
]


def of_parameters(**changes: Any) -> Any:
    """Features of 3 parameters."""
    fitting: dict[str, Any] = dict.fromkeys(("gradient", "step", "size", "params"), ones(3))
    return optimisers.optimiser_features(**fitting | {"momenta": ones(3, 3), "share": SCALAR, "eps": SCALAR} | changes)


def steps_ahead(**changes: Any) -> Any:
    """Targets of 4 windows of 2 steps under 3 rates."""
    fitting = {"reward": ones(4, 2), "counts": flags(4, 2), "ended": flags(4), "next_atoms": ones(4, 3, 1)}
    return q_targets.n_step_targets(**fitting | {"rates": ones(3), "sizes": ones(3)} | changes)


def played(**changes: Any) -> Any:
    """Scores of levels after 4 steps of 3 environments."""
    steps: dict[str, Any] = dict.fromkeys(("advantage", "value", "reward"), ones(4, 3))
    steps |= {"done": flags(4, 3), "active": flags(4, 3)}
    return levels.scored(LEVELS, UNUSED, "max-return", **steps | changes)


def update(batch: Any, weight: Any) -> Any:
    return normalisation.update_statistics(STATISTICS, batch, weight)


def roll(key: Any, state: Any, second: Any) -> Any:
    """A rollout of 3 environments for 4 steps, where `state` is [3] and `second` [4]."""
    return rollout.rollout(UNUSED, UNUSED, UNUSED, UNUSED, key, rollout.Carry(state, ones(3)), (ones(4, 3), second))


def recur(decay: Any, inputs: Any, start: Any) -> Any:
    return linear_cells.linear_recurrence((decay, decay), (inputs, inputs), (start, start), flags(4))


def along(**changes: Any) -> Any:
    fitting = {"reward": ones(4, 2), "next_values": ones(4, 2, 3), "terminated": flags(4, 2), "done": flags(4, 2)}
    return q_targets.lambda_targets(SCALAR, **fitting | {"rates": ones(3), "sizes": ones(3)} | changes)


def around(neighbours: Any, present: Any) -> dict[str, Any]:
    return {"own": ones(3), "neighbours": neighbours, "neighbours_present": present}


OF_A_USER = "refuses a user's arrays by ValueErrors, which tests of its module hold; the sums below it assert"
ANY_SHAPE = "takes arrays of any shape"
EXEMPT = {
    "advantages.gae": OF_A_USER,
    "advantages.lambda_returns": OF_A_USER,
    "advantages.mixture_ugae": OF_A_USER,
    "advantages.monte_carlo": OF_A_USER,
    "advantages.rate_returns": OF_A_USER,
    "advantages.ugae": OF_A_USER,
    "acting.agents_of": ANY_SHAPE,
    "composites.Composite.from_numbers": "takes a list of numbers",
    "composites.Curve.from_numbers": "takes a list of numbers",
    "composites.as_array": ANY_SHAPE,
    "composites.check_curve_range": ANY_SHAPE,
    "composites.stack_composites": "refuses other shapes by an error which test_curves holds",
    "composites.Perceptron.from_numbers": "takes a list of numbers",
    "composites.Perceptron.effective": "refuses weights by errors which test_drift holds",
    "q_targets.best_actions": "the functions of its parts assert",
    "action_probabilities.has_probabilities": "takes an environment and an actor",
    "action_probabilities.probabilities": ANY_SHAPE,
    "actor.check_memory": "refuses memories by errors which test_memory_laws holds",
    "actor.memories": ANY_SHAPE,
    "actor.scored": ANY_SHAPE,
    "beliefs.believing_head": "takes a head and a belief",
    "asymmetric.CentralisedActorCritic.__call__": ANY_SHAPE,
    "asymmetric.critic_observation": ANY_SHAPE,
    "asymmetric.global_observation_shapes": "takes shapes alone, and refuses them by errors which tests hold",
    "network_config.NetworkConfig.asymmetric": "takes shapes alone, and refuses them by errors which tests hold",
    "network_config.NetworkConfig.centralised": "takes shapes alone, and refuses them by errors which tests hold",
    "network_config.NetworkConfig.two_encoders": "takes shapes alone, and refuses them by errors which tests hold",
    "asymmetric.AsymmetricActorCritic.__call__": ANY_SHAPE,
    "asymmetric.AsymmetricRecurrentActorCritic.__call__": ANY_SHAPE,
    "asymmetric.check_sees": "takes the value of a field",
    "asymmetric.critic_input": ANY_SHAPE,
    "asymmetric.critic_shapes": "takes an environment",
    "asymmetric.facts_of": "takes an environment",
    "asymmetric.is_asymmetric": "takes a network",
    "asymmetric.seen_by": "takes an environment",
    "recurrent.part_of": ANY_SHAPE,
    "recurrent.unroll": "calls functions which assert",
    "network_config.NetworkConfig.actor_critic": "takes shapes alone, and refuses them by errors which tests hold",
    "exploration.gumbel_of": ANY_SHAPE,
    "exploration.noisy_actor": "takes functions and a head",
    "exploration.uniform_actor": "takes an actor and a head",
    "exploration.uniform_discrete_actor": "takes an actor",
    "networks.EntriesActorCritic.__call__": ANY_SHAPE,
    "networks.MLPActorCritic.__call__": ANY_SHAPE,
    "relation._LargestOutput.__call__": "calls largest_product, which asserts",
    "networks._Convolution.__call__": "gets an image whose rank the network asserts",
    "networks.apply_over": ANY_SHAPE,
    "networks.are_pixels": ANY_SHAPE,
    "networks.check_network": "takes shapes alone, and refuses a network by errors which test_networks holds",
    "networks.flatten_observation": ANY_SHAPE,
    "networks.last_layers": ANY_SHAPE,
    "networks.last_of_actor": ANY_SHAPE,
    "networks.last_of_critic": ANY_SHAPE,
    "networks.leading_axes": ANY_SHAPE,
    "rollout.first_observation": "takes what the environment takes",
    "networks.perceptron": ANY_SHAPE,
    "networks.returned": "takes shapes alone, and refuses a network by errors which tests hold",
    "networks.zeros": "takes shapes alone, any",
    "output_networks.OutputNetwork.__call__": ANY_SHAPE,
    "output_networks.check_outputs": "takes shapes alone, and refuses a network by errors which tests hold",
    "networks.with_action": ANY_SHAPE,
    "networks.without_action": ANY_SHAPE,
    "optimisers.scale_by_learned": "takes scalars of the hyper-parameters, which prepare has checked",
    "optimisers.adam": "takes scalars of the hyper-parameters, which prepare has checked",
    "optimisers.check_optimiser": "refuses factories by errors which test_own_optimisers holds",
    "optimisers.check_transformation": "refuses factories by errors which test_own_optimisers holds",
    "optimisers.custom": "takes the step size, which prepare has checked",
    "optimisers.transformation": "takes scalars of the hyper-parameters, which prepare has checked",
    "normalisation.init_statistics": "takes shapes alone, any",
    "recurrent.RecurrentActorCritic.__call__": ANY_SHAPE,
    "recurrent.check_recurrent": "takes shapes alone, and refuses a network by errors which test_recurrent holds",
    "exploration.network_memory": ANY_SHAPE,
    "network_config.NetworkConfig.remembering": "takes networks",
    "recurrent.RecurrentNetwork.__call__": ANY_SHAPE,
    "recurrent.check_remembering": "takes shapes alone, and refuses a network by errors which test_recurrent holds",
    "recurrent.first_memory": "takes a network",
    "recurrent.is_recurrent": "takes a network",
    "sequence_replay.SequenceReplay.begun": ANY_SHAPE,
    "sequence_replay.SequenceReplay.of_critics": ANY_SHAPE,
    "sequence_replay.SequenceReplay.of_rollout": "calls functions which assert",
    "recurrent.step_over": ANY_SHAPE,
    "value_losses.value_loss": "takes no array",
    "frames.FrameRing.newest": ANY_SHAPE,
    "frames.FrameRing.of": "takes sizes alone",
    "frames.frame_ring": "takes shapes alone, any",
    "replay.init_buffer": "takes shapes alone, any",
    "network_config.NetworkConfig.encoder": "takes shapes alone, and refuses them by errors which tests hold",
    "shards.averaged": ANY_SHAPE,
    "shards.greatest": ANY_SHAPE,
    "shards.summed": ANY_SHAPE,
}


@pytest.mark.slow_rows("output_networks.QNetwork.__call__-features")
@pytest.mark.parametrize(
    ("argument", "call"), [row[1:] for row in CALLS], ids=[f"{name}-{argument}" for name, argument, _ in CALLS]
)
def test_a_wrong_shape_is_refused_by_the_name_of_its_argument(argument: str, call: Callable[[], Any]) -> None:
    assert_refused(call, argument)


def test_every_function_of_arrays_opens_with_assertions() -> None:
    assert_complete("learning", EXEMPT, {name for name, _, _ in CALLS})
