"""Action heads against SciPy, and their samples against their probabilities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from envs.base import spaces
from jaxrl.learning.action_heads import ActionHead, action_head

EPS = float(np.finfo(np.float32).eps)
LOGITS = np.array([[0.3, -1.2, 2.0, 0.0], [5.0, 5.0, -5.0, 0.1]], np.float32)
MASK = np.array([[True, True, False, True], [False, True, True, False]])
SIZES = (4, 3)
BRANCHES = np.array([[0.3, -1.2, 2.0, 0.0, 1.0, 0.5, -0.5], [5.0, 5.0, -5.0, 0.1, 0.0, 2.0, 1.0]], np.float32)
NUM_SAMPLES = 20_000

# Error of a log-probability of float32 logits of at most 5 in size: a few roundings of numbers below 16.
LOG_TOLERANCE = 16 * 4 * EPS


def categorical() -> ActionHead:
    return action_head(spaces.Discrete(4))


def several() -> ActionHead:
    return action_head(spaces.Tuple([spaces.Discrete(size) for size in SIZES]))


def logits(values: Any) -> dict[str, Any]:
    return {"logits": jnp.asarray(values)}


def log_softmax(logits: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    logits = logits.astype(np.float64)
    return special.log_softmax(logits if mask is None else np.where(mask, logits, -np.inf), axis=-1)


def assert_frequencies(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """A chi-square test that fails by chance once in a million draws of keys; the key is fixed."""
    likely = probabilities > 0
    assert counts[~likely].sum() == 0
    expected = counts.sum() * probabilities[likely]
    statistic = np.sum((counts[likely] - expected) ** 2 / expected)
    assert statistic < stats.chi2.isf(1e-6, likely.sum() - 1)


def assert_logs(actual: Any, exact: Any) -> None:
    assert np.shape(actual) == np.shape(exact)
    assert np.abs(np.asarray(actual, np.float64) - exact).max() <= LOG_TOLERANCE


# --- one branch --------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_categorical_probabilities_and_entropies(mask: np.ndarray | None) -> None:
    head, exact = categorical(), log_softmax(LOGITS, mask)
    for action in range(4):
        raw = jnp.full(2, action)
        got = np.asarray(head.log_prob(logits(LOGITS), mask, raw))
        allowed = np.isfinite(exact[:, action])
        assert_logs(got[allowed], exact[allowed, action])
        assert np.all(np.exp(got[~allowed]) == 0) and np.all(np.isfinite(got))
    assert_logs(head.entropy(logits(LOGITS), mask), stats.entropy(np.exp(exact), axis=-1))


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_gumbel_samples_come_as_often_as_the_softmax_says(key: jax.Array, mask: np.ndarray | None) -> None:
    head = categorical()
    noise = head.noise(key, (NUM_SAMPLES, 2))
    assert noise.shape == (NUM_SAMPLES, 2, 4)
    raw = np.asarray(head.sample(logits(LOGITS), mask, noise))
    assert raw.dtype == np.int32 and raw.shape == (NUM_SAMPLES, 2)
    for row in range(2):
        assert_frequencies(np.bincount(raw[:, row], minlength=4), np.exp(log_softmax(LOGITS, mask))[row])


def test_a_masked_action_is_never_taken_however_large_its_logit(key: jax.Array) -> None:
    head, scores = categorical(), logits([1e4, 0.0, 1.0, 1e4])
    mask = jnp.array([False, True, True, False])
    assert set(np.asarray(head.sample(scores, mask, head.noise(key, (1000,)))).tolist()) == {1, 2}
    assert int(head.mode(scores, mask)) == 2
    assert int(head.mode(scores, None)) == 0


def test_the_mode_is_the_most_probable_action() -> None:
    head = categorical()
    assert head.mode(logits(LOGITS), None).tolist() == [2, 0]
    assert head.mode(logits(LOGITS), MASK).tolist() == [0, 1]
    assert head.mode(logits(LOGITS), MASK).dtype == jnp.int32


def test_gradients_through_a_mask_are_finite_and_zero_where_masked() -> None:
    head, mask = categorical(), MASK[0]

    def score(values: jax.Array) -> jax.Array:
        return head.log_prob(logits(values), mask, jnp.int32(1)) + 3 * head.entropy(logits(values), mask)

    gradient = np.asarray(jax.grad(score)(jnp.asarray(LOGITS[0])), np.float64)
    probability = np.exp(log_softmax(LOGITS[0], mask))
    logs = np.where(mask, log_softmax(LOGITS[0], mask), 0.0)
    entropy = -probability @ logs
    exact = (np.arange(4) == 1) - probability - 3 * probability * (logs + entropy)
    assert np.abs(gradient - exact).max() <= LOG_TOLERANCE
    assert gradient[2] == 0


def test_a_single_allowed_action_is_certain(key: jax.Array) -> None:
    head, mask = categorical(), jnp.array([False, False, False, True])
    scores = logits(LOGITS[0])
    assert float(head.log_prob(scores, mask, jnp.int32(3))) == 0
    assert float(head.entropy(scores, mask)) == 0
    gradient = jax.grad(lambda x: head.entropy(x, mask) + head.log_prob(x, mask, jnp.int32(3)))(scores)
    assert gradient["logits"].tolist() == [0, 0, 0, 0]


# --- several branches --------------------------------------------------------------------


@pytest.mark.slow_rows("False")
@pytest.mark.parametrize("masked", [False, True])
def test_branches_are_independent(key: jax.Array, masked: bool) -> None:
    head, scores = several(), logits(BRANCHES)
    masks = (MASK, np.array([[True, False, True], [True, True, True]])) if masked else None
    first = log_softmax(BRANCHES[:, :4], None if masks is None else masks[0])
    second = log_softmax(BRANCHES[:, 4:], None if masks is None else masks[1])
    raw = jnp.array([[0, 2], [1, 0]])
    assert_logs(head.log_prob(scores, masks, raw), first[[0, 1], [0, 1]] + second[[0, 1], [2, 0]])
    exact = stats.entropy(np.exp(first), axis=-1) + stats.entropy(np.exp(second), axis=-1)
    assert_logs(head.entropy(scores, masks), exact)
    noise = head.noise(key, (NUM_SAMPLES, 2))
    assert noise.shape == (NUM_SAMPLES, 2, 7)
    samples = np.asarray(head.sample(scores, masks, noise))
    assert samples.shape == (NUM_SAMPLES, 2, 2) and samples.dtype == np.int32
    joint = np.exp(first[0][:, None] + second[0])
    assert_frequencies(np.bincount(3 * samples[:, 0, 0] + samples[:, 0, 1], minlength=12), joint.ravel())
    modes = np.stack([first.argmax(-1), second.argmax(-1)], -1)
    assert head.mode(scores, masks).tolist() == modes.tolist()


def test_branches_become_a_tuple_for_the_environment() -> None:
    space = spaces.Tuple([spaces.Discrete(size) for size in SIZES])
    head = action_head(space)
    assert (head.num_outputs, head.continuous) == (7, False)
    action = head.to_env(jnp.array([[3, 2], [0, 1]]))
    assert isinstance(action, tuple) and [part.tolist() for part in action] == [[3, 0], [2, 1]]


def by_hand_kl(one: np.ndarray, other: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """KL(one || other) from logits, in float64; actions that are not allowed add nothing."""
    logs, others = log_softmax(one, mask), log_softmax(other, mask)
    allowed = np.isfinite(logs)
    return np.sum(np.exp(logs) * (np.where(allowed, logs, 0) - np.where(allowed, others, 0)), axis=-1)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
def test_the_divergence_of_categoricals(mask: np.ndarray | None) -> None:
    head, others = categorical(), LOGITS[::-1].copy()
    assert_logs(head.kl(logits(LOGITS), logits(others), mask), by_hand_kl(LOGITS, others, mask))
    assert np.asarray(head.kl(logits(LOGITS), logits(LOGITS), mask)).tolist() == [0, 0]
    gradient = jax.grad(lambda x: jnp.sum(head.kl(logits(x), logits(others), mask)))(jnp.asarray(LOGITS))
    assert np.all(np.isfinite(gradient))
    assert mask is None or np.all(np.asarray(gradient)[~mask] == 0)


def test_the_divergence_of_several_categoricals_is_their_sum() -> None:
    head, others = several(), BRANCHES[::-1].copy()
    masks = (jnp.asarray(MASK), jnp.array([[True, True, True], [False, True, True]]))
    exact = sum(
        by_hand_kl(BRANCHES[:, cut], others[:, cut], np.asarray(mask))
        for cut, mask in zip((slice(0, 4), slice(4, 7)), masks, strict=True)
    )
    assert_logs(head.kl(logits(BRANCHES), logits(others), masks), exact)


# --- continuous --------------------------------------------------------------------------

MEAN = np.array([[0.5, -2.0, 3.0], [0.0, 1.0, -1.0]], np.float32)
LOG_STD = np.array([-1.0, 0.0, 0.7], np.float32)


def normal(low: Any = -1.0, high: Any = 1.0, shape: tuple[int, ...] = (3,)) -> ActionHead:
    return action_head(spaces.Box(low, high, shape))


def scores_of(head: ActionHead) -> dict[str, jax.Array]:
    return head.scores(jnp.asarray(MEAN), jnp.asarray(LOG_STD))


def test_normal_probabilities_and_entropies() -> None:
    head, raw = normal(), np.array([[0.0, -1.0, 4.0], [2.0, 1.0, -6.0]], np.float32)
    deviation = np.exp(LOG_STD.astype(np.float64))
    exact = stats.norm.logpdf(raw, MEAN, deviation).sum(axis=-1)
    got = np.asarray(head.log_prob(scores_of(head), None, jnp.asarray(raw)))
    # Squares of up to 30 with a few roundings each.
    np.testing.assert_allclose(got, exact, rtol=0, atol=32 * 8 * EPS)
    entropy = stats.norm.entropy(MEAN, deviation).sum(axis=-1)
    assert_logs(head.entropy(scores_of(head), None), entropy)


def test_the_divergence_of_normals() -> None:
    head, other_mean, other_log_std = normal(), MEAN[::-1] + 0.5, LOG_STD[::-1]
    others = head.scores(jnp.asarray(other_mean), jnp.asarray(other_log_std))
    exact = np.zeros(2)
    for row in range(2):
        for mean, log_std, goal, goal_log_std in zip(
            MEAN[row].tolist(), LOG_STD.tolist(), other_mean[row].tolist(), other_log_std.tolist(), strict=True
        ):
            squares = np.exp(2 * log_std) + (mean - goal) ** 2
            exact[row] += goal_log_std - log_std + squares / (2 * np.exp(2 * goal_log_std)) - 0.5
    got = head.kl(scores_of(head), others, None)
    # Squares of up to 4^2 / (2 * .37^2) = 59, with a few roundings each.
    np.testing.assert_allclose(got, exact, rtol=0, atol=3 * 64 * 8 * EPS)
    assert np.asarray(head.kl(scores_of(head), scores_of(head), None)).tolist() == [0, 0]


def test_normal_samples_follow_the_normal(key: jax.Array) -> None:
    head = normal()
    noise = head.noise(key, (NUM_SAMPLES, 2))
    assert noise.shape == (NUM_SAMPLES, 2, 3)
    raw = np.asarray(head.sample(scores_of(head), None, noise))
    assert raw.shape == (NUM_SAMPLES, 2, 3) and raw.dtype == np.float32
    for row in range(2):
        for i in range(3):
            fit = stats.kstest(raw[:, row, i], stats.norm(MEAN[row, i], np.exp(LOG_STD[i])).cdf)
            assert fit.pvalue > 1e-6
    correlations = np.corrcoef(raw.reshape(NUM_SAMPLES, 6), rowvar=False) - np.eye(6)
    assert np.abs(correlations).max() < 5 / np.sqrt(NUM_SAMPLES)
    np.testing.assert_array_equal(head.mode(scores_of(head), None), MEAN)


def test_normal_gradients_reach_the_mean_and_the_deviation() -> None:
    head, raw = normal(), jnp.array([0.0, -1.0, 4.0])
    mean, log_std = jnp.asarray(MEAN[0]), jnp.asarray(LOG_STD)
    to_mean, to_log_std = jax.grad(lambda m, s: head.log_prob(head.scores(m, s), None, raw), argnums=(0, 1))(
        mean, log_std
    )
    variance = np.exp(2 * LOG_STD.astype(np.float64))
    error = np.asarray(raw, np.float64) - MEAN[0]
    np.testing.assert_allclose(to_mean, error / variance, rtol=8 * EPS)
    np.testing.assert_allclose(to_log_std, error**2 / variance - 1, rtol=0, atol=32 * EPS)


def test_a_bounded_box_is_reached_from_minus_one_to_one_and_clipped() -> None:
    low, high = np.array([-2.0, 0.0, 10.0], np.float32), np.array([2.0, 1.0, 14.0], np.float32)
    head = normal(low, high)
    raws = jnp.array([[-1.0] * 3, [0.0] * 3, [0.5] * 3, [1.0] * 3, [-7.0] * 3, [7.0] * 3])
    exact = [low, (low + high) / 2, low + 0.75 * (high - low), high, low, high]
    np.testing.assert_array_equal(head.to_env(raws), np.array(exact, np.float32))


def test_an_unbounded_box_takes_the_raw_action() -> None:
    raw = jnp.array([-1e6, 0.25, 1e6])
    largest = float(np.finfo(np.float32).max)
    for bound in (np.inf, largest):
        np.testing.assert_array_equal(normal(-bound, bound).to_env(raw), raw)


def test_each_coordinate_has_its_own_bounds() -> None:
    low, high = np.array([-2.0, -np.inf, 0.0], np.float32), np.array([4.0, np.inf, np.inf], np.float32)
    head = normal(low, high)
    assert head.to_env(jnp.array([1.0, 50.0, 50.0])).tolist() == [4.0, 50.0, 50.0]
    assert head.to_env(jnp.array([0.0, -50.0, -50.0])).tolist() == [1.0, -50.0, 0.0]


def test_actions_have_the_shape_of_the_space() -> None:
    head = normal(shape=(2, 3))
    assert (head.num_outputs, head.continuous) == (6, True)
    raw = jnp.linspace(-1, 1, 24).reshape(4, 6)
    np.testing.assert_array_equal(head.to_env(raw), raw.reshape(4, 2, 3))
    assert head.to_env(raw[0]).shape == (2, 3)
    scalar = normal(shape=())
    assert scalar.num_outputs == 1 and scalar.to_env(jnp.array([0.5])).shape == ()


def test_scores_are_named_as_an_export_names_them() -> None:
    scores = scores_of(normal())
    assert set(scores) == {"mean", "std"} and set(categorical().scores(jnp.asarray(LOGITS), None)) == {"logits"}
    np.testing.assert_array_equal(scores["mean"], MEAN)
    np.testing.assert_allclose(scores["std"], np.broadcast_to(np.exp(LOG_STD), MEAN.shape), rtol=4 * EPS)


# --- any space ---------------------------------------------------------------------------


def test_discrete_actions_pass_through() -> None:
    head = categorical()
    assert (head.num_outputs, head.continuous) == (4, False)
    assert head.to_env(jnp.array([2, 0])).tolist() == [2, 0]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (1,))}),
        spaces.Box(0, 3, (2,), jnp.int32),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,))]),
    ],
    ids=["dict", "integers", "mixed tuple"],
)
def test_other_spaces_are_refused(space: spaces.Space) -> None:
    with pytest.raises(TypeError, match=r"^action_space must be Discrete, MultiDiscrete, a Tuple or Dict .*, got"):
        action_head(space)


@pytest.mark.slow_rows("categorical", "several")
@pytest.mark.parametrize("head", [categorical(), several(), normal()], ids=["categorical", "several", "normal"])
def test_axes_in_front_are_free(key: jax.Array, head: ActionHead) -> None:
    outputs = jax.random.normal(key, (5, 2, head.num_outputs))
    log_std = jnp.asarray(LOG_STD) if head.continuous else None
    scores = head.scores(outputs, log_std)
    assert {leaf.shape for leaf in scores.values()} == {(5, 2, head.num_outputs)}
    raw = head.sample(scores, None, head.noise(key, (5, 2)))
    log_prob = head.log_prob(scores, None, raw)
    entropy = head.entropy(scores, None)
    assert log_prob.shape == entropy.shape == (5, 2)
    of_one = jax.tree.map(lambda leaf: leaf[3, 1], scores)
    one = head.log_prob(of_one, None, raw[3, 1])
    np.testing.assert_allclose(log_prob[3, 1], one, rtol=8 * EPS)
    np.testing.assert_allclose(entropy[3, 1], head.entropy(of_one, None), rtol=8 * EPS)
