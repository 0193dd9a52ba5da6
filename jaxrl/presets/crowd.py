"""The tuned settings of 2022 for each frame and kind of dynamics of a crowd, and those of the rewards of 2023."""

import math
from typing import Any, Literal, NamedTuple

from envs.crowd.dynamics import DYNAMICS
from envs.crowd.observations import FRAMES, PERCEPTIONS
from envs.crowd.scenarios import SCENARIOS
from envs.errors import UserValueError
from envs.spelling import near_or_all
from jaxrl.algorithms.ppo import PPOConfig
from jaxrl.presets.preset import Preset
from jaxrl.presets.walking import CAREFUL

__all__ = [
    "NUM_AGENTS",
    "NUM_ITERATIONS",
    "NUM_STEPS",
    "TUNED",
    "Tuned",
    "minibatches",
    "named",
    "settings_of_2023",
    "tuned",
]

NUM_STEPS = 200  # steps of an episode and of a rollout
NUM_ITERATIONS = 1000
MINIBATCH = 2048
ENTROPY_ITERATIONS = 500  # iterations in which the entropy bonus falls to a tenth, in the settings of 2022
ENTROPY_ITERATIONS_2023 = 100
NUM_AGENTS = {"circle": 12, "crossway": 50, "corridor": 50, "random": 20, "circle-block": 12, "choke": 20, "car": 20}
RAYS_HIDDEN = (64, 64, 64)


class Tuned(NamedTuple):
    """Tuned values for one frame and one kind of dynamics, named as in `PPOHParams` and `PPOConfig`."""

    frame: str
    dynamics: str
    lr: float
    discount: float
    lam: float
    clip_eps: float
    target_kl: float
    entropy_coef: float
    activation: str
    own_hidden: tuple[int, ...]
    neighbour_hidden: tuple[int, ...]
    hidden: tuple[int, ...]


def _row(name: str, *numbers: Any) -> Tuned:
    """A row; the last entry of `numbers` lists three groups of layers, where `32x2` means two layers of 32."""
    frame, dynamics = name.split()
    lr, discount, lam, clip_eps, target_kl, entropy_coef, activation, layers = numbers
    sizes = [tuple(map(int, group.split("x"))) for group in layers.split()]
    own, neighbour, joined = ((width,) * count for width, count in sizes)
    return Tuned(
        frame, dynamics, lr, discount, lam, clip_eps, target_kl, entropy_coef, activation, own, neighbour, joined
    )


# fmt: off
TUNED = tuple(_row(*row) for row in (
    # frame and dynamics, lr, discount, lam, clip, KL, entropy, activation, layers: own, neighbour, joined
    ("egocentric polar-velocity",         8.75e-5, .9926, .891, .143,  .0184, .0177,  "tanh",       "32x2 64x3 128x2"),
    ("egocentric polar-acceleration",     2.83e-4, .9844, .895, .100,  .0459, 1.4e-5, "leaky_relu", "64x2 32x3 64x2"),
    ("egocentric cartesian-velocity",     2.93e-4, .9814, .818, .121,  .0332, .0289,  "tanh",       "32x2 32x2 32x2"),
    ("egocentric cartesian-acceleration", 1.34e-4, .9953, .846, .0757, .0310, 3.4e-5, "leaky_relu", "32x2 64x3 64x3"),
    ("relative polar-velocity",           8.66e-4, .9357, .930, .0621, .0300, .0062,  "relu",       "32x2 64x3 32x3"),
    ("relative polar-acceleration",       1.06e-4, .9351, .928, .122,  .0445, .0139,  "leaky_relu", "128x2 32x3 128x2"),
    ("relative cartesian-velocity",       1.15e-3, .9493, .901, .0772, .0372, .0147,  "leaky_relu", "64x3 64x3 128x2"),
    ("relative cartesian-acceleration",   2.97e-4, .9971, .909, .125,  .0452, .0479,  "relu",       "64x2 32x3 64x3"),
    ("absolute polar-velocity",           3.74e-4, .9771, .952, .188,  .0226, .0220,  "leaky_relu", "128x2 32x3 64x2"),
    ("absolute polar-acceleration",       1.81e-4, .9361, .906, .185,  .0355, .0489,  "leaky_relu", "32x3 64x2 32x3"),
    ("absolute cartesian-velocity",       2.41e-4, .9386, .900, .0705, .0356, .0114,  "relu",       "32x3 64x2 64x3"),
    ("absolute cartesian-acceleration",   1.24e-3, .9464, .890, .106,  .0306, 8.7e-4, "relu",       "32x2 64x2 32x3"),
))
# fmt: on


def tuned(
    frame: str, dynamics: str, scenario: str = "circle", num_agents: int | None = None, perception: str = "neighbours"
) -> Preset:
    """The settings of 2022 for one frame and one kind of dynamics, in any scenario.

    They were tuned with observations of neighbours; observations by rays alone use three layers of 64
    and otherwise the same values. Rollouts are whole episodes, in two worlds for up to 20 agents and in
    one for more. The values that were not tuned: 20 epochs of minibatches of about 2048 (a size that
    divides the samples of a rollout evenly), an entropy bonus that falls to a tenth in 500 iterations,
    advantages standardised over the batch, Adam's epsilon of 1e-7, an initial log standard deviation of
    0.4, a squared error of the value of weight 1, no bound on gradients, and a time limit that counts as
    termination. Learning stops at the minibatch where the KL divergence becomes too large. There are two
    differences from the source: the divergence is estimated by (ratio - 1) - log ratio, not by -log ratio;
    and hidden layers start with orthogonal weights of gain sqrt(2) and the policy's last layer of gain
    0.01, in place of 1 and a hundredth.

    Args:
      frame: Frame of observations: "absolute", "relative" or "egocentric".
      dynamics: Kind of dynamics: "cartesian-velocity", "cartesian-acceleration", "polar-velocity" or
        "polar-acceleration".
      scenario: Name of a scenario in `envs.crowd.SCENARIOS`.
      num_agents: Number of agents; None for the usual number of the scenario, `NUM_AGENTS`.
      perception: Kind of perception: "neighbours", "rays" or "both".

    Raises:
      ValueError: A name is unknown, or the scenario has no room for so many agents once it is built.

    Source: Kwiatkowski et al. (2023), "Understanding reinforcement learned crowds".
    """
    for name, value, known in (
        ("frame", frame, FRAMES),
        ("dynamics", dynamics, DYNAMICS),
        ("scenario", scenario, tuple(SCENARIOS)),
        ("perception", perception, PERCEPTIONS),
    ):
        if value not in known:
            raise UserValueError(f"{name} is {value!r}{near_or_all(str(value), known)}")
    row = next(row for row in TUNED if (row.frame, row.dynamics) == (frame, dynamics))
    count = NUM_AGENTS[scenario] if num_agents is None else num_agents
    return _preset(
        scenario,
        count,
        num_envs=2 if count <= 20 else 1,
        layers={"hidden": row.hidden, "own_hidden": row.own_hidden, "neighbour_hidden": row.neighbour_hidden},
        activation=row.activation,
        hparams={name: getattr(row, name) for name in _TUNED_HPARAMS},
        entropy_iterations=ENTROPY_ITERATIONS,
        static={"frame": frame, "dynamics": dynamics, "perception": perception},
    )


def settings_of_2023(scenario: str = "circle", num_agents: int = 40, perception: str = "neighbours") -> Preset:
    """The settings with which the rewards of 2023 were compared: polar acceleration, egocentric.

    They differ from `tuned` in the hyper-parameters, in large networks, in an entropy bonus that falls
    to a tenth in 100 iterations, and in two worlds for fewer than 50 agents; and where the KL divergence
    becomes too large, the weights before the last step are restored.

    Args:
      scenario: Name of a scenario in `envs.crowd.SCENARIOS`.
      num_agents: Number of agents.
      perception: Kind of perception: "neighbours", "rays" or "both".

    Source: Kwiatkowski et al. (2023), "Reward function design for crowd simulation via reinforcement learning".
    """
    return _preset(
        scenario,
        num_agents,
        num_envs=2 if num_agents < 50 else 1,
        layers={"hidden": (512,) * 3, "own_hidden": (512,) * 4, "neighbour_hidden": (512,) * 4},
        activation="leaky_relu",
        hparams={
            "lr": 1e-4,
            "discount": 0.99,
            "lam": 0.928,
            "clip_eps": 0.122,
            "target_kl": 0.0445,
            "entropy_coef": 0.01387,
        },
        entropy_iterations=ENTROPY_ITERATIONS_2023,
        kl_stop="rewind",
        static={"preset": "2023", "frame": "egocentric", "dynamics": "polar-acceleration", "perception": perception},
    )


def named(algorithm: str, environment: str, name: str) -> Preset:
    """The settings that `jaxrl.preset` takes by name: those of crowds that avoid contacts, or those of `tuned`.

    Args:
      algorithm: Name of the algorithm, `ppo`.
      environment: Name of a crowd, such as `crowd/circle`.
      name: "careful", or frame and kind of dynamics, such as "egocentric polar-acceleration".

    Raises:
      ValueError: There are no tuned settings for these names.
    """
    if name == "careful":
        row = next((row for row in CAREFUL if (row.algorithm, row.environment) == (algorithm, environment)), None)
        if row is None:
            known = " and ".join(f"{row.algorithm} on {row.environment}" for row in CAREFUL)
            raise UserValueError(f"tuned={name!r} has settings of {known}, not {algorithm} on {environment}")
        return row._replace(tuned=name)
    known = [f"{row.frame} {row.dynamics}" for row in TUNED]
    if algorithm != "ppo" or not environment.startswith("crowd/"):
        raise UserValueError(
            f"tuned has settings of ppo on crowds (crowd/circle and the like), not {algorithm} on {environment}"
        )
    if name not in known:
        raise UserValueError(f"tuned is {name!r}{near_or_all(name, ('careful', *known))}")
    frame, dynamics = name.split()
    return tuned(frame, dynamics, environment.removeprefix("crowd/"))._replace(tuned=name)


def minibatches(num_rows: int, size: int) -> int:
    """The number of minibatches, dividing the rows evenly, whose size is the nearest to `size`."""
    divisors = [n for n in range(1, min(num_rows, math.ceil(num_rows / size) * 4) + 1) if num_rows % n == 0]
    return min(divisors, key=lambda n: abs(num_rows / n - size))


_TUNED_HPARAMS = ("lr", "discount", "lam", "clip_eps", "target_kl", "entropy_coef")


def _preset(
    scenario: str,
    num_agents: int,
    *,
    num_envs: int,
    layers: dict[str, Any],
    activation: str,
    hparams: dict[str, Any],
    entropy_iterations: int,
    static: dict[str, Any],
    kl_stop: Literal["minibatch", "rewind"] = "minibatch",
) -> Preset:
    """The settings that both papers share; see `tuned`."""
    per_iteration = num_envs * NUM_STEPS
    if static["perception"] == "rays":
        layers = {"hidden": RAYS_HIDDEN}
    config = PPOConfig(
        num_envs=num_envs,
        num_steps=NUM_STEPS,
        num_epochs=20,
        num_minibatches=minibatches(per_iteration * num_agents, MINIBATCH),
        activation=activation,
        normalise_advantage="batch",
        reset_pool=2,
        time_limits="terminal",
        kl_stop=kl_stop,
        **layers,
    )
    fixed = {
        "entropy_decay_env_steps": float(entropy_iterations * per_iteration),
        "value_coef": 2.0,  # coefficient of half the squared error
        "max_grad_norm": math.inf,
        "adam_eps": 1e-7,
        "log_std_init": 0.4,
    }
    return Preset(
        "ppo",
        f"crowd/{scenario}",
        config,
        hparams | fixed,
        NUM_ITERATIONS * per_iteration,
        {"num_agents": num_agents, **static},
    )
