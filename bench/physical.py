"""Random-policy stepping of the control tasks and small problems, and of gym-electric-motor where it is installed.

    python bench/physical.py [--tasks motor/dc lander] [--num-envs 64 1024] [--steps 250000] [--rounds 7]
                             [--gem PYTHON | --no-peers]

jaxrl steps as in `bench/envs.py`: scans of 128 steps that store every observation, reward and flag, with a fresh state
for every reset. gym-electric-motor steps one motor in NumPy and SciPy, with actions drawn in advance, by the
interpreter `--gem` of an environment into which `pip install gym-electric-motor==3.0.3` installed it. Both run
alternately, on one core under `taskset -c 0`. The share of CartPole's rate in the same invocation shows how much a task
costs on any machine.

The exit status is 1 if a motor is less than 50 times as fast as gym-electric-motor's at 1,024 environments or more.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":  # a script's folder is first on the path, where envs.py hides `envs`
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.envs import NUM_STEPS, calls_of, in_one_program, measure, ours
from bench.report import Report, benchmark_parser, ratios, spread
from bench.sides import add_peers, find_peer
from envs.registry import ROWS

TASKS = (
    *("cartpole", "cartpole-swing-up", "acrobot-continuous", "reacher", "lander", "lander-continuous", "racing"),
    *("quadrotor/hover", "quadrotor/tracking"),
    *("pde/convection-diffusion-reaction", "pde/wave", "pde/burgers", "pde/kuramoto-sivashinsky"),
    *(name for name in ROWS if name.startswith("lq/")),
    *("fishery", "inventory", "kelly", "queue", "replacement", "river", "stopping"),
)
MOTORS = {
    "motor/dc": "Cont-CC-PermExDc-v0",
    "motor/dc-finite": "Finite-CC-PermExDc-v0",
    "motor/synchronous": "Cont-CC-PMSM-v0",
    "motor/synchronous-finite": "Finite-CC-PMSM-v0",
}
LEAST_TIMES, TARGETS_FROM, THEIR_STEPS = 50.0, 1024, 1000
THEIRS = """
import sys, time, warnings
warnings.simplefilter("ignore")
import gym_electric_motor
env = gym_electric_motor.make(sys.argv[1])
env.reset(seed=0)
actions = [env.action_space.sample() for _ in range(int(sys.argv[2]))]
for line in sys.stdin:
    start = time.perf_counter()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    print(time.perf_counter() - start, flush=True)
"""


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=[*TASKS, *MOTORS], choices=[*TASKS, *MOTORS])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--steps", type=int, default=250_000, help="minimum steps of one timing (at least 4 rollouts)")
    parser.add_argument("--rounds", type=int, default=7)
    add_peers(parser, "gem")
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")
    arguments = parser.parse_args()
    arguments.gem = None if arguments.no_peers else find_peer(parser, "gem", arguments.gem)
    report = Report(parser, arguments, "random-policy steps of control tasks and small problems, in millions a second")
    columns = {
        "task": "",
        "N": ",d",
        "ours": ".2f",
        "of CartPole's": ".2f",
        "gym-electric-motor": ".5f",
        "times": ",.0f",
    }
    title = f"Millions of steps per second; {arguments.rounds} alternating runs: median (least to most)"
    table = report.table(title, columns)
    sentences = []
    for num_envs in arguments.num_envs:
        cartpole = 0.0
        for name in ("cartpole", *(task for task in arguments.tasks if task != "cartpole")):
            rates, theirs = compare(name, num_envs, arguments)
            cartpole = cartpole or statistics.median(rates)
            times = ratios(rates, theirs) if theirs else None
            table.add(name, num_envs, rates, statistics.median(rates) / cartpole, theirs or None, times)
            sentence = f"{name}, {num_envs:,}: {spread(rates, '.2f')}"
            if times is not None:
                median = statistics.median(times)
                sentence += f", {median:,.0f} times gym-electric-motor"
                met = num_envs < TARGETS_FROM or median >= LEAST_TIMES
                report.require(met, f"{name} at N = {num_envs:,}: {median:.0f} times as fast, under {LEAST_TIMES:g}.")
            sentences.append(sentence)
    report.finish("; ".join(sentences))


def compare(name: str, num_envs: int, arguments: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Millions of steps a second of a task and of its original, measured alternately; the second may be empty."""
    calls = calls_of(arguments.steps, num_envs)
    once, carry = ours(name, num_envs)
    run = in_one_program(once)
    carry = measure(run, carry, 1)[1]  # compiles
    original = None
    if arguments.gem and name in MOTORS:
        command = [arguments.gem, "-c", THEIRS, MOTORS[name], str(THEIR_STEPS)]
        original = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(arguments.rounds):
        seconds, carry, _ = measure(run, carry, calls)
        rates[0].append(calls * NUM_STEPS * num_envs / seconds / 1e6)
        if original is not None and original.stdin and original.stdout:
            print(file=original.stdin, flush=True)
            rates[1].append(THEIR_STEPS / float(original.stdout.readline()) / 1e6)
    if original is not None:
        original.communicate()
    return rates


if __name__ == "__main__":
    main()
