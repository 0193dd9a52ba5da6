"""Every algorithm trains with what the table of capabilities states, and refuses the rest in one sentence."""

import re

import jax
import jax.numpy as jnp
import pytest
from capabilities import CAPABILITIES, hparams_class, refusal

from jaxrl.algorithms.registry import ROWS

# Sentences of the capabilities that some algorithm lacks; {} stands for its configuration or hyper-parameters.
SENTENCES = {
    'Parts: learned, `optimiser="learned"`': r"optimiser takes .*; on-policy algorithms alone take 'learned'$",
    "Actions: discrete": r"\w+ takes an environment whose action space is a Box of floats, got Discrete\(2",
    "Actions: several discrete": r"\w+ takes an environment whose action space is a Box of floats, got Tuple\(",
    "Actions: continuous": r"\w+ takes an environment of discrete actions \(.*\), got Box\(",
    "Actions: masked": r"\w+ takes an environment whose action space is a Box of floats, got Discrete\(15",
    'Critics: global, `critic_sees="global"`': r"{}Config has no field 'critic_sees'; ppo, sac, td3 and other algori",
    'Critics: privileged, `critic_sees="privileged"`': r"{}Config has no field 'critic_sees'; ppo, sac, td3 and other",
    "Episodes: levels played again, `levels`": r"{}Config has no field 'levels'; |levels takes 'draws' in REINFORCE",
    "Discounts: all others": r"discount must be a mixture of exponentials, because values bootstrap, and fixed:ho",
}
LACKING = {
    "Actions: discrete": {"td3"},
    "Actions: several discrete": {"td3"},
    "Actions: continuous": {"dqn", "pqn"},
    "Actions: masked": {"td3"},
    'Critics: global, `critic_sees="global"`': {"dqn", "pqn", "evolve"},
    'Critics: privileged, `critic_sees="privileged"`': {"dqn", "pqn", "evolve"},
    "Episodes: levels played again, `levels`": {"reinforce", "dqn", "pqn", "sac", "td3", "evolve"},
    'Parts: learned, `optimiser="learned"`': {"dqn", "pqn", "sac", "td3", "evolve"},
    "Discounts: all others": {"dqn", "pqn", "sac", "td3"},
    "Schedules: `lr_end`": {"evolve"},
}


def takers(title: str) -> list[str]:
    """Names of the algorithms that take what a capability has: those that do not lack it, and have its schedule."""
    field, names = title.partition("`")[2][:-1], [name for name in ROWS if name not in LACKING.get(title, ())]
    scheduled = CAPABILITIES[title].group == "Schedules"
    return [name for name in names if not scheduled or field in hparams_class(name).__dataclass_fields__]


TAKERS = {title: takers(title) for title in CAPABILITIES}
FAST = {title: names[i % len(names)] for i, (title, names) in enumerate(TAKERS.items())}  # one of each capability


@pytest.mark.parametrize("title", CAPABILITIES)
def test_missing_capabilities_are_refused_in_one_sentence(title: str) -> None:
    refused = {name: text for name in ROWS if (text := refusal(name, title)) is not None}
    if CAPABILITIES[title].group != "Schedules" or title in LACKING:
        assert set(refused) == LACKING.get(title, set())
    schedule = rf"{{}}HParams has no field '{title.partition('`')[2][:-1]}'|\w+ has no effect on this environment"
    for text in refused.values():
        assert re.match(SENTENCES.get(title, schedule).replace("{}", r"\w+"), text), text
        assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    ("title", "name"),
    [
        pytest.param(title, name, marks=[] if FAST[title] == name else pytest.mark.slow)
        for title in CAPABILITIES
        for name in TAKERS[title]
    ],
)
def test_algorithms_trace_a_step_with_each_supported_capability(title: str, name: str) -> None:
    algo = CAPABILITIES[title].build(name)
    params = algo.env.default_params
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.hparams, params)
    after, metrics = jax.eval_shape(algo.step, jax.random.key(0), jnp.int32(0), state, algo.hparams, params)
    assert jax.tree.structure(after) == jax.tree.structure(state) and metrics
    seen = jax.tree.leaves(algo.env.observation_space(params).sample(jax.random.key(0)))
    assert (max(map(jnp.ndim, seen)) == 3) == (title == "Observations: images")
