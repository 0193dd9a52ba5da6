"""Parts of an iteration of PPO with a memory: acting, gradient steps, and the recurrence within these.

    python bench/memory_shares.py [--memories lru gru] [--seeds 8] [--rounds 7] [--iterations 16] [--json FILE]

PPO on memory/repeat-first is that of `roofline.py --only memories`, with each memory and without one. The programs run
in turns, and every figure is processor time, which other work on the machine affects less. An iteration is one call of
the step of all seeds. Its parts:

* acting: the rollout alone;
* gradients: an iteration with twice the epochs less the iteration, which are the gradient steps of all epochs;
* recurrence: the cell alone, forward and backward along the sequences of these gradient steps; a part of the gradients;
* rest: the iteration less acting and gradients: values of the rollout, advantages, metrics.

The second table has the shares of the parts in an iteration.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp

import jaxrl
from bench.report import Report, benchmark_parser
from bench.roofline import MEMORIES, ppo_with
from jaxrl.algorithms.on_policy import agents_of, on_policy
from jaxrl.learning.actor import memories
from jaxrl.learning.recurrent import first_memory, unroll_over

PARTS = ("iteration", "acting", "gradients", "recurrence", "rest")


def main() -> None:
    """Print the parts of an iteration, and their shares."""
    parser = benchmark_parser(__doc__)
    choices = [memory for memory in MEMORIES if memory != "none"]
    parser.add_argument("--memories", nargs="+", choices=choices, default=["lru", "gru"], help="memories")
    parser.add_argument("--seeds", type=int, default=8, help="runs of a program")
    parser.add_argument("--rounds", type=int, default=7, help="turns")
    parser.add_argument("--iterations", type=int, default=16, help="calls of each program in a turn")
    arguments = parser.parse_args()
    report = Report(parser, arguments, "shares of an iteration of PPO with and without a memory")
    names = ("none", *arguments.memories)
    sides = {memory: programs(memory, arguments.seeds) for memory in names}
    turns = [
        {memory: parts_of(side, arguments.iterations) for memory, side in sides.items()}
        for _ in range(arguments.rounds + 1)
    ][1:]  # the first is not timed
    config = ppo_with("none").config
    title = (
        f"PPO on memory/repeat-first, processor ms of an iteration of {arguments.seeds} seeds with {config.num_envs} "
        f"environments and {config.num_steps} steps each; medians of {arguments.rounds} turns (least to most)"
    )
    table = report.table(title, {"memory": "", **dict.fromkeys(PARTS, ",.2f")})
    for memory in names:
        table.add(memory, *([1e3 * turn[memory][part] for turn in turns] for part in PARTS))
    shares = report.table("Shares in an iteration", {"memory": "", **dict.fromkeys(PARTS[1:], ".0%")})
    sentences = []
    for memory in names:
        each = {part: [turn[memory][part] / turn[memory]["iteration"] for turn in turns] for part in PARTS[1:]}
        shares.add(memory, *each.values())
        sentences.append(f"{memory} " + ", ".join(f"{part} {statistics.median(each[part]):.0%}" for part in each))
    report.finish("; ".join(sentences))


def parts_of(programs: dict[str, Callable[[], Any]], iterations: int) -> dict[str, float]:
    """Seconds of processor time of each part of an iteration, in one turn."""
    seconds = {}
    for name, run in programs.items():
        started = time.process_time()
        for _ in range(iterations):
            jax.block_until_ready(run())
        seconds[name] = (time.process_time() - started) / iterations
    gradients = seconds.pop("twice the epochs") - seconds["iteration"]
    recurrence, rest = seconds.pop("recurrence", 0.0), seconds["iteration"] - seconds["acting"] - gradients
    return seconds | {"gradients": gradients, "recurrence": recurrence, "rest": rest}


def programs(memory: str, num_seeds: int) -> dict[str, Callable[[], Any]]:
    """Compiled programs of all seeds of PPO with a memory, by name."""
    algo = ppo_with(memory)
    longer = ppo_with(memory, num_epochs=2 * algo.config.num_epochs)
    keys = jax.random.split(jax.random.key(0), num_seeds)
    params, hparams = algo.env.default_params, algo.prepare(algo.hparams)
    state = jax.jit(jax.vmap(lambda key: algo.init(key, hparams, params)))(keys)
    agent = on_policy(algo.env, algo.config, None, agents_of(algo.env, None))

    def step(algo: jaxrl.Algorithm) -> Callable[..., Any]:
        return lambda key, state: algo.step(key, jnp.int32(0), state, hparams, params)

    def act(key: jax.Array, state: Any) -> Any:
        return agent.collect(key, agent.policy(state, hparams), state, hparams, params)

    functions = {"iteration": step(algo), "acting": act, "twice the epochs": step(longer)}
    ready = {name: compiled(function, keys, state) for name, function in functions.items()}
    if memory != "none":
        ready["recurrence"] = recurrence(algo.config, num_seeds)
    return ready


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Program of a function of each seed, with its arguments."""
    program = jax.jit(jax.vmap(function)).lower(*arguments).compile()
    return lambda: program(*arguments)


def recurrence(config: Any, num_seeds: int) -> Callable[[], Any]:
    """Program of the cell alone, forward and backward along the sequences of all gradient steps of an iteration."""
    cell, count = config.memory_cell(), config.num_minibatches
    shape = (count, config.num_steps, config.num_envs // count)  # of minibatches, which are whole rollouts

    def drawn(key: jax.Array) -> Any:
        """Parameters, features and resets of a seed."""
        keys = jax.random.split(key, 3)
        features = jax.random.normal(keys[0], (*shape, config.hidden[-1]))
        reset = jax.random.bernoulli(keys[1], 1 / 52, shape)  # an episode has 52 steps
        return cell.init(keys[2], features[0, 0, 0], first_memory(cell)), features, reset

    def of_seed(params: Any, features: jax.Array, reset: jax.Array) -> Any:
        start = memories(first_memory(cell), shape[2:])

        def loss(params: Any, features: jax.Array, reset: jax.Array) -> jax.Array:
            return jnp.mean(jnp.square(unroll_over(cell, params, features, start, reset)[0]))

        def update(params: Any, minibatch: Any) -> Any:
            slopes, of_features = jax.grad(loss, (0, 1))(params, *minibatch)
            params = jax.tree.map(lambda leaf, slope: leaf - 1e-3 * slope, params, slopes)
            return params, jnp.sum(jnp.abs(of_features))

        def epoch(params: Any, _: None) -> Any:
            return jax.lax.scan(update, params, (features, reset))

        return jax.lax.scan(epoch, params, None, length=config.num_epochs)

    return compiled(of_seed, *jax.vmap(drawn)(jax.random.split(jax.random.key(1), num_seeds)))


if __name__ == "__main__":
    main()
