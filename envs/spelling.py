"""Suggestions for mistyped words, and synonyms from other libraries."""

import difflib
import re
from collections.abc import Iterable

# Names here, with their names in other libraries; a name there may stand for several here, of which one has one or two.
_ELSEWHERE = {
    "lr": ("learning_rate", "step_size", "q_lr"),
    "lr_end": ("anneal_lr", "lr_schedule", "anneal_learning_rate"),
    "discount": ("gamma",),
    "lam": ("gae_lambda", "lambda", "lambda_", "lmbda"),
    "entropy_coef": ("ent_coef", "ent_coeff", "entropy_weight"),
    "temperature": ("alpha", "ent_coef", "ent_coeff"),
    "automatic_temperature": ("autotune", "ent_coef", "ent_coeff"),
    "target_entropy_fraction": ("target_entropy",),
    "value_coef": ("vf_coef", "vf_coeff", "critic_coef"),
    "clip_eps": ("clip_range", "clip_coef", "clip_ratio", "clip_param"),
    "value_clip": ("clip_vloss",),
    "num_envs": ("n_envs", "num_actors", "num_workers"),
    "num_steps": ("n_steps", "rollout_length", "unroll_length", "train_freq", "train_frequency"),
    "num_minibatches": ("batch_size",),
    "num_epochs": ("n_epochs", "update_epochs"),
    "num_updates": ("gradient_steps", "num_gradient_steps", "utd_ratio"),
    "num_critics": ("n_critics",),
    "num_atoms": ("n_atoms", "n_quantiles"),
    "hidden": ("hidden_sizes", "hidden_layer_sizes", "net_arch", "features"),
    "buffer_size": ("replay_size", "memory_capacity"),
    "prefill": ("learning_starts", "learning_start", "start_steps", "warm_up", "warmup_steps"),
    "target_rate": ("tau", "polyak"),
    "target_interval": ("target_update_interval", "target_network_frequency"),
    "policy_delay": ("policy_frequency",),
    "target_noise": ("target_policy_noise", "policy_noise"),
    "target_noise_clip": ("noise_clip",),
    "noise_std": ("exploration_noise", "action_noise"),
    "epsilon_start": ("exploration_initial_eps", "start_e"),
    "epsilon_end": ("exploration_final_eps", "end_e"),
    "epsilon_anneal_env_steps": ("exploration_fraction",),
    "env_steps": ("total_timesteps", "num_timesteps", "total_steps", "timesteps"),
    "evals": ("eval_freq", "num_evals", "n_evals"),
    "eval_episodes": ("n_eval_episodes", "num_eval_episodes"),
    "search": ("sweep", "tune", "optimize", "optimise"),
    "devices": ("device", "gpu", "cuda", "tpu", "accelerator", "platform"),
    "out": ("log_dir", "save_dir", "output_dir"),
    "dueling": ("duelling",),
}

__all__ = ["near", "near_or_all", "own_names"]


def own_names(word: str) -> list[str]:
    """Names here for a word of other libraries (`learning_rate`) or in American spelling (`optimizer`)."""
    lower = word.lower()
    names = [name for name, others in _ELSEWHERE.items() if lower in others]
    british = re.sub(r"(?<=[a-z])iz(?=e|at|ing)", "is", lower)
    return names or [british] * (british != lower)


def near(word: str, words: Iterable[str], prefix: str = "") -> str:
    """Clause of an error that suggests words, such as "; did you mean 'cartpole'?".

    Args:
      word: Unknown word.
      words: Known words.
      prefix: Text before each suggested word.

    Returns:
      Clause with the words closest to the unknown one; empty if there are none.
    """
    by_lower_case = {candidate.lower(): candidate for candidate in words}
    same = [name for name in own_names(word) if name in by_lower_case]
    close = same or difflib.get_close_matches(word.lower(), by_lower_case, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(prefix + by_lower_case[match]) for match in close)}?" if close else ""


def near_or_all(word: str, words: Iterable[str], has: str = "it takes") -> str:
    """Clause of an error that suggests words, or lists all of them if none is close.

    Args:
      word: Unknown word.
      words: Known words.
      has: Text before the list.
    """
    words = list(words)
    return near(word, words) or f"; {has} {', '.join(words)}."
