"""Suggestions for mistyped words, and synonyms from other libraries."""

import difflib
import re
from collections.abc import Iterable

# Names in other libraries, with the name here.
SYNONYMS = {
    **dict.fromkeys(("learning_rate", "step_size"), "lr"),
    **dict.fromkeys(("anneal_lr", "lr_schedule", "anneal_learning_rate"), "lr_end"),
    **dict.fromkeys(("gae_lambda", "lambda", "lambda_", "lmbda"), "lam"),
    **dict.fromkeys(("ent_coef", "ent_coeff", "entropy_weight"), "entropy_coef"),
    **dict.fromkeys(("vf_coef", "vf_coeff", "critic_coef"), "value_coef"),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_ratio", "clip_param"), "clip_eps"),
    **dict.fromkeys(("n_envs", "num_actors", "num_workers"), "num_envs"),
    **dict.fromkeys(("n_steps", "rollout_length", "unroll_length"), "num_steps"),
    **dict.fromkeys(("n_epochs", "update_epochs"), "num_epochs"),
    **dict.fromkeys(("hidden_sizes", "hidden_layer_sizes", "net_arch", "features"), "hidden"),
    **dict.fromkeys(("total_timesteps", "num_timesteps", "total_steps", "timesteps"), "env_steps"),
    **dict.fromkeys(("eval_freq", "num_evals", "n_evals"), "evals"),
    **dict.fromkeys(("n_eval_episodes", "num_eval_episodes"), "eval_episodes"),
    **dict.fromkeys(("sweep", "tune", "optimize", "optimise"), "search"),
    **dict.fromkeys(("log_dir", "save_dir", "output_dir"), "out"),
    **dict.fromkeys(("learning_starts", "learning_start", "start_steps", "warm_up", "warmup_steps"), "prefill"),
    "duelling": "dueling",
}

__all__ = ["near", "near_or_all", "own_name"]


def own_name(word: str) -> str | None:
    """Name here for a word of other libraries (`learning_rate`) or in American spelling (`optimizer`), else None."""
    lower = word.lower()
    british = re.sub(r"(?<=[a-z])iz(?=e|at|ing)", "is", lower)
    return SYNONYMS.get(lower) or (british if british != lower else None)


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
    same = own_name(word)
    close = [same] if same in by_lower_case else difflib.get_close_matches(word.lower(), by_lower_case, n=3, cutoff=0.6)
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
