"""Action values of small random problems under each rate of a mixture, in float64."""

import numpy as np


def random_problem(rng: np.random.Generator, num_states: int, num_actions: int) -> tuple[np.ndarray, np.ndarray]:
    """Transition probabilities `[S, A, S]`, most of them near 0 or 1, and rewards `[S, A]`."""
    chances = rng.dirichlet(np.full(num_states, 0.3), (num_states, num_actions))
    return chances, rng.normal(size=(num_states, num_actions))


def best_values(chances: np.ndarray, rewards: np.ndarray, rate: float) -> np.ndarray:
    """The action values `[S, A]` of the policy that is best at one rate, by value iteration."""
    values = np.zeros_like(rewards)
    while True:
        after = rewards + rate * chances @ values.max(1)
        if np.abs(after - values).max() < 1e-13:
            return after
        values = after


def policy_values(chances: np.ndarray, rewards: np.ndarray, rate: float, policy: np.ndarray) -> np.ndarray:
    """The action values `[S, A]` at one rate of a policy, the action of each state `[S]`, by its linear equations."""
    states = np.arange(len(rewards))
    value = np.linalg.solve(np.eye(len(states)) - rate * chances[states, policy], rewards[states, policy])
    return rewards + rate * chances @ value


def own_values(chances: np.ndarray, rewards: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Values `[S, A, K]` where each rate bootstraps from its own best action."""
    return np.stack([best_values(chances, rewards, rate) for rate in rates], axis=-1)


def joint_values(
    chances: np.ndarray, rewards: np.ndarray, rates: np.ndarray, weights: np.ndarray, most: int = 200
) -> tuple[np.ndarray, np.ndarray] | None:
    """Values `[S, A, K]` of a policy that is greedy for its own mixture, and the policy; None where it does not settle.

    Each policy is greedy for the mixture of the values of the previous one.
    """
    policy = np.zeros(len(rewards), int)
    for _ in range(most):
        values = np.stack([policy_values(chances, rewards, rate, policy) for rate in rates], axis=-1)
        greedy = (values @ weights).argmax(1)
        if np.array_equal(greedy, policy):
            return values, policy
        policy = greedy
    return None
