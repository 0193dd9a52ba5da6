"""Programs of every algorithm, compared as text with recorded ones, so that a move of code changes no number.

Equal text means equal programs, and so equal bits. The fast suite has one program of each algorithm; a move runs all:

    pytest -m "" tests/algorithms/test_golden_programs.py

After an intended change of a program, record all of them anew, and state in the commit which differ, and why:

    python tests/algorithms/test_golden_programs.py
"""

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import envs
from jaxrl.algorithms.contract import Algorithm
from jaxrl.algorithms.registry import ROWS, make

RECORDED = Path(__file__).with_name("golden_programs.json")

NORMALISED = {"normalise_observation": True}
EVERYTHING = NORMALISED | {"normalise_reward": True, "shared_trunk": True, "critic": "mixture", "critic_heads": 3}
GRU = {"memory": "gru", "memory_size": 4}
JOINT = {"heads": "joint", "num_heads": 3}
PRIORITISED = {"replay": "prioritised", "n_step": 3}
SEQUENCES = GRU | {"sequence_length": 4}


class Program(NamedTuple):
    """One algorithm on one environment.

    Attributes:
      algorithm: Name of a row of the registry.
      environment: Name of an environment.
      config: Fields of the configuration, beyond the small one of the row.
      discount: Discount; None for the default one.
    """

    algorithm: str
    environment: str
    config: dict[str, Any]
    discount: Any = None

    def build(self) -> Algorithm:
        """The algorithm."""
        env = envs.make(self.environment, **({"num_agents": 3} if self.environment == "crowd/circle" else {}))
        if self.algorithm == "sac" and self.environment == "crowd/circle":
            env = envs.wrappers.bound_actions(env, 2.0)
        config = make(self.algorithm, env).config
        return make(self.algorithm, env, dataclasses.replace(config, **{**ROWS[self.algorithm].small, **self.config}))


PROGRAMS: dict[str, Program] = {
    "ppo": Program("ppo", "cartpole", {}),
    "ppo, everything": Program(
        "ppo", "pendulum", EVERYTHING | {"kl_stop": "rewind", "normalise_advantage": "batch"}, "beta:mu=0.98,eta=0.5"
    ),
    "ppo, burn-in": Program("ppo", "cartpole", GRU | {"burn_in": 4, "kl_stop": "minibatch"}, "hyperbolic:k=0.05"),
    "ppo, staged belief": Program("ppo", "cooperation/levers", GRU | {"belief": "staged"}),
    "ppo, belief of a crowd": Program("ppo", "cooperation/crowd", GRU | {"belief": "conditioned"}),
    "ppo, central critic": Program("ppo", "crowd/circle", {"critic_sees": "global"}),
    "ppo, mask": Program("ppo", "pathworld", NORMALISED | {"time_limits": "terminal"}),
    "a2c": Program("a2c", "cartpole", {}),
    "a2c, everything": Program("a2c", "pendulum", EVERYTHING | {"normalise_advantage": "batch"}),
    "a2c, crowd": Program("a2c", "game/climbing", GRU, "fixed:horizon=20"),
    "spo": Program("spo", "cartpole", {}),
    "spo, everything": Program("spo", "pendulum", EVERYTHING),
    "spo, crowd": Program("spo", "crowd/circle", GRU | {"normalise_advantage": "batch"}),
    "mdpo": Program("mdpo", "cartpole", {}),
    "mdpo, everything": Program("mdpo", "pendulum", EVERYTHING),
    "mdpo, mask": Program("mdpo", "pathworld", GRU),
    "ppo_kl": Program("ppo_kl", "cartpole", {}),
    "ppo_kl, everything": Program("ppo_kl", "pendulum", EVERYTHING),
    "ppo_kl, crowd": Program("ppo_kl", "game/climbing", {"critic_sees": "global"}),
    "reinforce": Program("reinforce", "cartpole", {}),
    "reinforce, no baseline": Program(
        "reinforce", "pendulum", NORMALISED | {"baseline": "off", "time_limits": "terminal"}, "hyperbolic:k=0.05"
    ),
    "reinforce, memory": Program("reinforce", "pathworld", GRU | {"normalise_advantage": "batch"}),
    "pqn": Program("pqn", "cartpole", {}),
    "pqn, own heads": Program(
        "pqn",
        "game/climbing",
        NORMALISED | {"heads": "own", "num_heads": 3, "time_limits": "terminal"},
        "hyperbolic:k=0.05",
    ),
    "pqn, memory": Program("pqn", "pathworld", GRU),
    "pqn, mask": Program("pqn", "pathworld", {"value_loss": "hl-gauss", "num_atoms": 7}),
    "dqn": Program("dqn", "cartpole", {}),
    "dqn, joint heads": Program(
        "dqn",
        "game/climbing",
        JOINT | PRIORITISED | NORMALISED | {"value_loss": "quantile", "num_atoms": 5},
        "hyperbolic:k=0.05",
    ),
    "dqn, munchausen": Program("dqn", "pathworld", {"munchausen": True, "target_update": "soft"}),
    "dqn, c51": Program(
        "dqn", "pathworld", {"double": False, "value_loss": "categorical", "num_atoms": 5, "time_limits": "terminal"}
    ),
    "dqn, memory": Program("dqn", "pathworld", SEQUENCES | PRIORITISED | {"burn_in": 1}),
    "sac": Program("sac", "pendulum", {}),
    "sac, joint heads": Program(
        "sac",
        "crowd/circle",
        JOINT | {"replay": "prioritised", "noise": "ornstein-uhlenbeck"},
        "hyperbolic:k=0.05",
    ),
    "sac, quantiles": Program(
        "sac",
        "pendulum",
        {"value_loss": "quantile", "num_atoms": 5, "dropped_atoms": 1, "automatic_temperature": False},
    ),
    "sac, discrete": Program("sac", "pathworld", {"num_critics": 3, "noise": "ornstein-uhlenbeck"}),
    "sac, discrete quantiles": Program("sac", "cartpole", {"value_loss": "quantile", "num_atoms": 5}),
    "sac, memory": Program("sac", "crowd/circle", SEQUENCES),
    "sac, discrete, memory": Program("sac", "pathworld", SEQUENCES | {"noise": "ornstein-uhlenbeck"}),
    "td3": Program("td3", "pendulum", {}),
    "td3, joint heads": Program("td3", "pendulum", JOINT | PRIORITISED | NORMALISED, "hyperbolic:k=0.05"),
    "td3, ddpg": Program(
        "td3",
        "pendulum",
        {"policy_delay": 1, "target_smoothing": False, "num_critics": 1, "noise": "ornstein-uhlenbeck"},
    ),
    "td3, quantiles": Program("td3", "pendulum", {"value_loss": "quantile", "num_atoms": 5, "dropped_atoms": 1}),
    "td3, memory": Program("td3", "pendulum", SEQUENCES | PRIORITISED | NORMALISED | {"burn_in": 1}),
    "evolve": Program("evolve", "cartpole", {}),
    "evolve, memory": Program("evolve", "pendulum", GRU | NORMALISED | {"strategy": "snes"}),
    "evolve, crowd": Program("evolve", "game/climbing", {"common_random_numbers": True, "strategy": "simple-ga"}),
}


def description(program: Program) -> dict[str, str]:
    """Hashes of the programs `init` and `step`, and of the structures of State and Policy."""
    algo = program.build()
    hparams = algo.hparams if program.discount is None else dataclasses.replace(algo.hparams, discount=program.discount)
    hparams, params, key = algo.prepare(hparams), algo.env.default_params, jax.random.key(0)
    state = jax.eval_shape(algo.init, key, hparams, params)
    init = jax.make_jaxpr(algo.init)(key, hparams, params)
    step = jax.make_jaxpr(algo.step)(key, jnp.int32(0), state, hparams, params)
    policy = jax.eval_shape(algo.policy, state, hparams)
    texts = {"init": init, "step": step, "state": _structure(state), "policy": _structure(policy)}
    # Functions of custom derivatives are printed with their addresses.
    return {name: _hash(re.sub(r"0x[0-9a-f]+", "", str(text))) for name, text in texts.items()}


def _structure(tree: Any) -> str:
    leaves, structure = jax.tree.flatten(tree)
    return f"{structure} {[(leaf.shape, str(leaf.dtype)) for leaf in leaves]}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_every_algorithm_has_three_programs() -> None:
    for name in ROWS:
        assert sum(program.algorithm == name for program in PROGRAMS.values()) >= 3, name


@pytest.mark.filterwarnings("ignore:the 3 exponentials of the heads differ:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "," in name else name for name in PROGRAMS]
)
def test_the_program_is_the_recorded_one(name: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    if recorded["jax"] != jax.__version__:
        pytest.skip(f"programs were recorded by JAX {recorded['jax']}, and another version prints others")
    assert description(PROGRAMS[name]) == recorded["programs"][name]


if __name__ == "__main__":
    programs = {name: description(program) for name, program in PROGRAMS.items()}
    RECORDED.write_text(json.dumps({"jax": jax.__version__, "programs": programs}, indent=1) + "\n")
