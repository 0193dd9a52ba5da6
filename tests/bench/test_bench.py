"""The benchmarks run and store their measurements, the page of results shows them, and roofline counts are correct."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxrl
from bench import __main__ as suite
from bench import advantages, ceilings, crowd, envs, report, roofline, sides, train, work
from envs import make
from envs.crowd import Forces, pairs
from envs.crowd.social_force import social_forces
from jaxrl.bandits.arms import ArmSums, Tally, _added
from jaxrl.bandits.policies.ucb import _ucb1_index
from jaxrl.discounts.parsing import prepare
from jaxrl.learning.networks import MLPActorCritic, apply_over
from jaxrl.learning.rollout import step_once
from jaxrl.runtime.accelerators.figures import launches

ROOT = Path(__file__).parents[2]


def smallest(name: str, out: Path) -> dict[str, Any]:
    """Run a benchmark at its smallest size, as `python -m bench` does, and return the stored report."""
    command = [sys.executable, "-m", "bench", name, "--smallest", "--out", str(out)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    file = out / f"{name}.json"
    assert file.exists(), done.stdout + done.stderr
    document = json.loads(file.read_text())
    assert done.returncode == (1 if document["missed"] else 0), done.stderr
    return document


def check(name: str, document: dict[str, Any], out: Path) -> None:
    """Check that a stored report is complete, and that its page belongs to it."""
    assert document["command"].startswith(f"python bench/{name}.py")
    assert document["result"] and document["what"]
    assert document["header"]["jax"] == jax.__version__
    assert document["tables"]
    for table in document["tables"]:
        assert table["rows"], table["title"]
        for row in table["rows"]:
            assert len(row) == len(table["columns"])
    assert (out / f"{name}.md").read_text() == report.markdown(name, document)


@pytest.mark.slow
@pytest.mark.parametrize("name", suite.BENCHMARKS)
def test_every_benchmark_runs_at_its_smallest_size(name: str, tmp_path: Path):
    check(name, smallest(name, tmp_path), tmp_path)


def test_every_script_is_a_benchmark_that_the_suite_knows():
    parts = {"__init__", "__main__", "browser", "ceilings", "machine", "report", "sides", "work"}
    parts |= {"accelerators", "accelerator_cases", "accelerator_page", "gpu"}
    assert {file.stem for file in (ROOT / "bench").glob("*.py")} == parts | set(suite.BENCHMARKS)


def test_the_page_has_the_table_of_the_stored_results():
    assert suite.with_table(suite.PAGE.read_text(), list(suite.stored(suite.RESULTS))) == suite.PAGE.read_text()


def test_stored_pages_are_those_of_the_stored_numbers():
    for file in sorted(suite.RESULTS.glob("*.json")):
        assert file.with_suffix(".md").read_text() == report.markdown(file.stem, json.loads(file.read_text()))


def document(**changes: Any) -> dict[str, Any]:
    header = {"processor": "a processor", "cores": "2 cores", "devices": "gpu one", "platform": "cpu", "jax": "1.2.3"}
    stored = {"header": header, "command": "python bench/envs.py", "what": "steps", "result": "5 times", "missed": []}
    return stored | {"notes": [], "tables": []} | changes


def test_the_table_lists_stored_reports_by_machine(tmp_path: Path):
    on_gpu = document(result="9 times", header=document()["header"] | {"platform": "gpu"})
    (tmp_path / "envs-gpu.json").write_text(json.dumps(on_gpu))
    (tmp_path / "envs.json").write_text(json.dumps(document()))
    pinned = document(command="python bench/train.py", header=document()["header"] | {"cores": "1 core"})
    (tmp_path / "train.json").write_text(json.dumps(pinned))
    text = suite.with_table(f"before {suite.BEGIN}old{suite.END} after", list(suite.stored(tmp_path)))
    assert text.startswith(f"before {suite.BEGIN}\n") and text.endswith(f"\n{suite.END} after")
    assert text.splitlines()[1:-1] == [
        "a processor, jax 1.2.3, 2 cores:",
        "",
        "| Command | What | Result |",
        "|---|---|---|",
        "| `python bench/train.py` | steps | 5 times |",
        "| `python bench/envs.py` | steps | 5 times |",
        "",
        "gpu one, jax 1.2.3; a processor, 2 cores:",
        "",
        "| Command | What | Result |",
        "|---|---|---|",
        "| `python bench/envs.py` | steps | 9 times |",
    ]
    assert suite.with_table(f"{suite.BEGIN}old{suite.END}", []) == f"{suite.BEGIN}\n{suite.END}"


@pytest.mark.parametrize("text", ["", suite.BEGIN, suite.END + suite.BEGIN, suite.BEGIN + suite.BEGIN + suite.END])
def test_a_page_without_its_marks_is_refused(text: str):
    with pytest.raises(ValueError, match=r"benchmarks\.md must have <!-- benchmarks:begin -->"):
        suite.with_table(text, [])


def test_a_report_keeps_every_number_and_fails_with_its_missed_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["bench/some.py"])
    parser = report.benchmark_parser("What it does.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rejax", default="python")
    file = tmp_path / "some.json"
    arguments = parser.parse_args(["--seeds", "2", "8", "--quick", "--rejax", "elsewhere", "--json", str(file)])
    actual = report.Report(parser, arguments, "some")
    table = actual.table("A table", {"name": "", "s": ".2f", "times": ".1f"})
    table.add("ours", [3.0, 1.0, 2.0], None)
    rows = len(json.loads(file.read_text())["tables"][0]["rows"])
    table.add("theirs", 4.0, 2)
    actual.require(True, "This was met.")
    actual.require(False, "This was missed.")
    with pytest.raises(SystemExit) as error:
        actual.finish("2 times")
    assert error.value.code == "This was missed."
    lines = ["| name | s | times |", "|---|---|---|", "| ours | 2.00 (1.00 to 3.00) |  |", "| theirs | 4.00 | 2.0 |"]
    assert "\n".join(lines) in capsys.readouterr().out
    stored = json.loads(file.read_text())
    assert rows == 1
    assert stored["command"] == "python bench/some.py --seeds 2 8 --quick"
    assert stored["tables"][0]["rows"] == [["ours", [3.0, 1.0, 2.0], None], ["theirs", 4.0, 2]]
    assert stored["missed"] == ["This was missed."]
    assert "\n".join(lines) in report.markdown("some", stored)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["walking"], "NAME must be among train, "),
        (["envs", "--smallest"], "--smallest requires --out"),
        (["envs", "--smallest", "--out"], "expected one argument"),
        (["envs", "--smallest", "--out", str(suite.RESULTS / ".." / "results")], "--smallest requires --out"),
        (["--table", "envs"], "--table runs nothing"),
        (["--table", "--out", "elsewhere"], "--table runs nothing"),
        (["envs", "train", "--rejax", "/no/such/python"], "--rejax: there is no /no/such/python"),
    ],
)
def test_bad_arguments_of_the_suite_get_a_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        suite.main(words)
    assert sentence in capsys.readouterr().err


def fake_runs(monkeypatch: pytest.MonkeyPatch, *outcomes: tuple[dict[str, Any] | None, int | None]) -> list[list[str]]:
    """Make benchmarks write these documents and end with these statuses, None for Ctrl-C; return their options."""
    asked, left = [], iter(outcomes)

    def run(command: list[str], **_: Any) -> argparse.Namespace:
        asked.append(command[2:-2])
        written, status = next(left)
        if written is not None:
            Path(command[-1]).write_text(json.dumps(written))
        if status is None:
            raise KeyboardInterrupt
        return argparse.Namespace(returncode=status)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_the_suite_lists_missed_targets_and_failed_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    outcomes = [(document(missed=["Too slow."]), 1), (None, 1), (document(), 1), (document(missed=["Late."]), -9)]
    asked = fake_runs(monkeypatch, *outcomes)
    words = ["train", "memory", "envs", "seeds", "--smallest", "--peers", "no", "--out", str(tmp_path)]
    assert suite.main([*words, "--", "--seeds", "7"]) == 1
    assert asked[0] == [*suite.BENCHMARKS["train"].smallest.split(), "--seeds", "7"]
    assert asked[1] == [*suite.BENCHMARKS["memory"].smallest.split(), "--seeds", "7"]
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "Missed:",
        "train: Too slow.",
        "memory failed with exit status 1, see its error above.",
        "envs failed with exit status 1, see its error above.",
        "seeds failed with exit status -9, see its error above.",
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.json", "train.md", "unfinished"]
    unfinished = sorted(file.name for file in (tmp_path / "unfinished").iterdir())
    assert unfinished == ["envs.json", "envs.md", "seeds.json", "seeds.md"]


def test_a_suite_runs_beside_the_peers_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, there in (("rejax", False), ("sb3", True)):
        python = tmp_path / name / "python"
        python.parent.mkdir()
        python.touch(mode=0o755 if there else 0o644)
        monkeypatch.setitem(sides.PEERS, name, (python, f"what {name} is"))
    asked = fake_runs(monkeypatch, (document(), 0))
    assert suite.main(["train", "--out", str(tmp_path / "out")]) == 0
    assert asked == [["--sb3", str(tmp_path / "sb3" / "python")]]
    reported = capsys.readouterr().out
    assert "Missing: what rejax is, which `make bench` installs" in reported and "what sb3 is" not in reported


def test_training_is_measured_without_peers_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("rejax", "sb3"):
        monkeypatch.setitem(sides.PEERS, name, (tmp_path / "missing", f"what {name} is"))
    written = {"run_seconds": 2.0, "return": 500.0, "sampled": 499.0, "deviation": 1.0}

    def ours(command: list[str]) -> Any:
        assert "--worker" in command  # of a process of jaxrl
        return argparse.Namespace(
            runs=[written],
            compiled={"compile_seconds": 1.0},
            run=lambda: None,
            close=lambda: None,
            figures=lambda name: [written[name]],
            median=lambda name: written[name],
        )

    monkeypatch.setattr(train, "Side", ours)
    monkeypatch.setattr("sys.argv", ["bench/train.py", "--seeds", "8"])
    train.main()
    reported = capsys.readouterr().out
    assert "Missing: what rejax is" in reported and "Missing: what sb3 is" in reported
    assert "evaluated at the end: 2.00 s at 8" in reported and "beside rejax" not in reported


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    page = tmp_path / "benchmarks.md"
    page.write_text(suite.PAGE.read_text())
    monkeypatch.setattr(suite, "PAGE", page)
    assert suite.main(["--table"]) == 0
    assert capsys.readouterr().out.strip() in page.read_text()


def test_ctrl_c_ends_the_suite_and_keeps_finished_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = fake_runs(monkeypatch, (document(), 0), (document(), None))
    written = []
    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    monkeypatch.setattr(suite, "write_table", lambda: written.append(1))
    assert suite.main(["envs", "memory", "seeds"]) == 130
    assert len(asked) == 2 and written == [1]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["envs.json", "envs.md", "unfinished"]


def test_options_of_their_own_replace_no_full_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_runs(monkeypatch, (document(), 0))
    monkeypatch.setattr(suite, "RESULTS", tmp_path)
    monkeypatch.setattr(suite, "write_table", lambda: pytest.fail("there is nothing new to write"))
    assert suite.main(["envs", "--", "--rounds", "1"]) == 0
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_of_medians_between_those_within_turns():
    actual = report.ratios([2.0, 9.0, 4.0], [1.0, 3.0, 4.0])
    assert actual == [1.0, 4.0 / 3.0, 3.0]  # the median of the ratios is 2
    assert report.spread(actual, ".2f") == "1.33 (1.00 to 3.00)"
    assert report.ratios([3.0], [2.0]) == [1.5]


class Printed:
    """Lines that the processes of two sides printed."""

    def __init__(self, returned: float, device: str = "cpu one"):
        self.compiled = {"device": device}
        self.runs = [{"return": returned, "sampled": returned, "deviation": 3.0}]

    def median(self, name: str) -> float:
        return self.runs[-1][name]


def test_a_return_is_below_by_standard_errors_over_seeds():
    low, high = Printed(90.0), Printed(100.0)
    assert train.below(low, high, 10) == pytest.approx(10 / (18 / 9) ** 0.5)  # pyright: ignore[reportArgumentType]
    assert train.below(high, low, 10) < 0  # pyright: ignore[reportArgumentType]
    assert not train.below(low, high, 1) > 0  # pyright: ignore[reportArgumentType]


def test_sides_on_two_kinds_of_devices_are_not_compared():
    one, other = Printed(1.0), Printed(1.0, "gpu one")
    sides.require_same_device(one, one)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SystemExit, match="same kind of device, got cpu one for ours and gpu one for theirs"):
        sides.require_same_device(one, other)  # pyright: ignore[reportArgumentType]


def test_a_call_that_a_signal_ended_early_is_not_a_measurement():
    cut, complete = (argparse.Namespace(metrics=argparse.Namespace(attrs={"interrupted": one})) for one in (1, 0))
    assert sides.whole(complete) is complete
    with pytest.raises(KeyboardInterrupt, match="not a measurement"):
        sides.whole(cut)


# Shortened text of a compiler: a loop of 5 turns of two operations, one of unknown length of one, a condition of
# two branches, a call that is only a name for what it contains, and one that is compiled into a single function.
PROGRAM = """HloModule jit_f

%inside (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %twofold = f32[8]{0} add(%x, %x)
}

%twice (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %a.1 = f32[8]{0} fusion(%x), kind=kLoop, calls=%inside
  ROOT %b.1 = f32[8]{0} dot(%a.1, %a.1), lhs_contracting_dims={0}
}

%once (x: (f32[8], s32[])) -> (f32[8], s32[]) {
  %y = (f32[8]{0}, s32[]) parameter(0)
  %z = f32[8]{0} get-tuple-element(%y), index=0
  %copied = f32[8]{0} copy(%z)
  %added = f32[8]{0} add(%copied, %z)
  ROOT %t = (f32[8]{0}, s32[]) tuple(%added, %z)
}

%nothing (x: f32[8]) -> f32[8] {
  ROOT %n = f32[8]{0} parameter(0)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  %c = f32[] constant(0)
  %w.1 = f32[8]{0} while(%x.1), condition=%nothing, body=%twice, backend_config={"known_trip_count":{"n":"5"}}
  %w.2 = (f32[8]{0}, s32[]) while(%w.1), condition=%nothing, body=%once, backend_config={"other":"1"}
  %if = f32[8]{0} conditional(%c, %x.1, %x.1), branch_computations={%twice, %nothing}
  %if.2 = f32[8]{0} conditional(%c, %x.1, %x.1), true_computation=%twice, false_computation=%once
  %called = f32[8]{0} call(%x.1), to_apply=%twice
  %small = f32[8]{0} call(%x.1), to_apply=%twice, frontend_attributes={xla_cpu_small_call="true"}
  %start = f32[8]{0} copy-start(%x.1)
  ROOT %done = f32[8]{0} copy-done(%start)
}
"""


def test_launches_of_a_program_by_hand():
    beside = 1 + (1 + 1) + 2 + 1  # each condition with its cheaper branch, and both calls
    assert launches(PROGRAM) == 5 * 2 + 1 + beside
    assert launches(PROGRAM, unknown_trips=(100,)) == 5 * 2 + 100 + beside
    assert launches(PROGRAM, unknown_trips=(0,)) == 5 * 2 + beside
    with pytest.raises(ValueError, match="text must be the text of a compiled program"):
        launches("HloModule jit_f")


# A loop of two operations and a loop within, which has one, one of 5 known turns, and one of an unknown number.
NESTED = """HloModule jit_g

%inmost (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %a.1 = f32[8]{0} add(%x, %x)
}

%inner (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %b.1 = f32[8]{0} add(%x, %x)
  %w.1 = f32[8]{0} while(%b.1), condition=%c, body=%inmost, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %w.2 = f32[8]{0} while(%w.1), condition=%c, body=%inmost
}

%outer (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %d.1 = f32[8]{0} add(%x, %x)
  %w.3 = f32[8]{0} while(%d.1), condition=%c, body=%inner
  ROOT %d.2 = f32[8]{0} add(%w.3, %x)
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %e.1 = f32[8]{0} add(%x, %x)
  ROOT %w.4 = f32[8]{0} while(%e.1), condition=%c, body=%outer
}
"""


def test_launches_of_loops_within_loops_by_hand():
    assert launches(NESTED) == 1 + 2 + (1 + 5 + 1)
    assert launches(NESTED, (3, 10, 2)) == 1 + 3 * (2 + 10 * (1 + 5 + 2))
    # The outermost loop is that of the iterations; operations outside it are shared among them.
    assert roofline.launches_of_an_iteration(NESTED, 10) == (2 + (1 + 5 + 1)) + 1 / 10


@pytest.mark.parametrize("turns", [3, 300])
def test_launches_of_a_compiled_loop_are_its_turns_times_its_operations(turns: int):
    def loop(length: int) -> int:
        program = jax.jit(ceilings.small_operations, static_argnums=(0, 1, 2))
        lowered = program.lower(ceilings.SMALL[1], turns, length, jnp.ones((1, 2)), jnp.ones((64, 64)))
        return launches(lowered.compile().as_text())

    one = (loop(4) - loop(3)) / turns
    assert one in (1, 2)  # a product, and perhaps its factors
    assert loop(7) - loop(3) == turns * 4 * one


@pytest.mark.slow
def test_ceilings_are_numbers():
    actual = ceilings.measure_ceilings(rounds=2, share=1 / 64)
    assert all(value > 0 for value in actual._replace(launch=1.0))


def cost(function: Any, *arguments: Any) -> tuple[float, float]:
    """Operations and transcendentals that XLA counts in a traced program without loops, of which it counts one turn."""
    analysis: Any = jax.jit(function).lower(*arguments).cost_analysis()
    return analysis["flops"], analysis.get("transcendentals", 0.0)


def of_step() -> tuple[Any, work.Work]:
    env = make("cartpole")
    params = jax.tree.map(jnp.float32, env.default_params)
    _, state = env.reset_env(jax.random.key(0), params)
    actual = cost(lambda *a: step_once(env, jax.random.key(0), *a), state, jnp.int32(0), params)
    return actual, work.cartpole_rollout(1, 1)._replace(transcendentals=0)


def of_advantages(discount: Any) -> tuple[Any, work.Work]:
    data, prepared = advantages.rollout(1, 64), prepare(discount, 128)
    actual = cost(lambda lam, *data: jaxrl.ugae(prepared, lam, *data), 0.95, *data)
    return actual, work.advantages(1, 64, len(prepared.rates))


def of_gradient() -> tuple[Any, work.Work]:
    network = MLPActorCritic(2)

    def loss(params: Any, obs: jax.Array) -> jax.Array:
        outputs, value = apply_over(network, params, obs, 1)
        return jnp.sum(outputs**2) + jnp.sum(value**2)

    params = network.init(jax.random.key(0), jnp.zeros(4))
    config = jaxrl.preset("ppo", "cartpole").algo.config
    return cost(jax.grad(loss), params, jnp.ones((128, 4))), work.gradient(config, 4, 2).times(128)


def of_crowd() -> tuple[Any, work.Work]:
    num_agents, forces = 64, jax.tree.map(jnp.float32, Forces())
    shape = (num_agents, crowd.CAPACITY)
    near = pairs.Candidates(jnp.zeros(shape, jnp.int32), jnp.ones(shape, bool), jnp.int32(0))

    def substep(position: jax.Array, velocity: jax.Array, preferred: jax.Array) -> Any:
        apart = position[near.index] - position[:, None]
        close = near.valid & (jnp.sum(apart * apart, axis=-1) < forces.cut_off**2)
        pull = (preferred - velocity) / forces.relaxation
        push = social_forces(position, velocity, pairs.Candidates(near.index, close, near.overflow), forces)
        velocity = velocity + crowd.DT * (pull + push)
        return position + crowd.DT * velocity, velocity

    actual = cost(substep, *[jnp.ones((num_agents, 2))] * 3)
    return actual, work.crowd_agent_step(crowd.CAPACITY, crowd.SUBSTEPS).times(num_agents)


def of_ucb() -> tuple[Any, work.Work]:
    def pull(pulls: jax.Array, sums: jax.Array, time: jax.Array) -> Any:
        index = _ucb1_index(pulls, sums, 2 * jnp.log(time))
        tallies = [Tally(low, jnp.zeros_like(low)) for low in (pulls, sums)]
        return _added(ArmSums(*tallies), jnp.argmax(index), jnp.float32(1))

    return cost(pull, jnp.ones(10), jnp.ones(10), jnp.float32(3)), work.bandit_pull("ucb1", 10)


def of_sac() -> tuple[Any, work.Work]:
    sizes: Any = {"num_envs": 1, "num_steps": 1, "num_updates": 1, "prefill": 128, "buffer_size": 128}
    algo = jaxrl.sac(make("pendulum"), jaxrl.SACConfig(**sizes, batch_size=128))
    hparams, params = algo.prepare(algo.hparams), algo.env.default_params
    state = jax.eval_shape(algo.init, jax.random.key(0), hparams, params)
    step: Any = algo.step
    actual = cost(lambda *a: step(*a, hparams, params), jax.random.key(0), jnp.int32(0), state)
    return actual, work.sac_iteration(algo.config)


PIECES = {
    "cartpole": (of_step, 0.8),
    "gae": (lambda: of_advantages(0.98), 0.85),
    "beta": (lambda: of_advantages("beta:mu=0.98,eta=0.5"), 0.95),
    "gradient": (of_gradient, 0.95),
    "crowd": (of_crowd, 0.7),
    "ucb1": (of_ucb, 0.6),
}


@pytest.mark.slow_rows("gradient")
@pytest.mark.parametrize("name", PIECES)
def test_operations_are_a_lower_bound_that_is_near_the_compilers_count(name: str):
    """XLA also counts index arithmetic, flags and small reductions, which the formulas leave out."""
    piece, least = PIECES[name]
    (operations, transcendentals), formula = piece()
    assert least * operations < formula.operations <= operations
    assert transcendentals == formula.transcendentals


def test_work_of_gradient_steps_of_sac_is_a_lower_bound_that_is_near_the_compilers_count():
    """XLA also counts the step of the environment, the losses and the logarithms and roots of normal noise."""
    (operations, transcendentals), formula = of_sac()
    assert 0.95 * operations < formula.operations <= operations
    assert 0.95 * transcendentals < formula.transcendentals <= transcendentals


def test_bytes_of_a_rollout_are_those_of_its_arrays():
    run, carry = envs.ours("cartpole", 64)
    shapes = jax.tree.leaves((carry, jax.eval_shape(run, jax.random.key(0), carry)))
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
    assert work.cartpole_rollout(64, 128).bytes == total - 4  # the count of reused states


@pytest.mark.parametrize(("name", "count"), [("ppo", work.ppo_iteration), ("a2c", work.a2c_iteration)])
def test_bytes_of_an_iteration_are_two_copies_of_parameters_and_moments(name: str, count: Any):
    algo = jaxrl.preset(name, "cartpole").algo
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), algo.env.default_params)
    kept = jax.tree.leaves((state.weights, state.observations, state.optimiser))
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in kept)
    assert count(algo.config).bytes == 2 * (total - 4)  # Adam counts its steps


def test_bytes_of_an_iteration_of_sac_are_two_copies_of_all_that_learns():
    algo = jaxrl.preset("sac", "pendulum").algo
    state = jax.eval_shape(algo.init, jax.random.key(0), algo.prepare(algo.hparams), algo.env.default_params)
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.learner))
    assert work.sac_iteration(algo.config).bytes == 2 * (total - 3 * 4)  # each Adam counts its steps


def test_a2c_is_ppo_with_one_epoch_of_one_minibatch_without_log_probabilities():
    sizes: Any = {"num_envs": 8, "num_steps": 16, "hidden": (8,)}
    once = work.ppo_iteration(jaxrl.PPOConfig(num_epochs=1, num_minibatches=1, **sizes))
    less = work.Work(2 * (4 * 8 + 8 * 2), 0, 1, 8).times(128)  # one pass of the actor, and a word of the shuffle
    assert work.a2c_iteration(jaxrl.A2CConfig(**sizes)).plus(less) == once


def test_the_floor_is_that_of_the_limit_that_binds():
    limits = ceilings.Ceilings(100.0, 200.0, 5.0, 10.0, 5.0, 4.0, launch=0.25, dispatch=2.0)
    workload = roofline.Workload(
        "some", work.Work(400, 30, 20, 2), launches=4, dispatches=1, seconds=[8.0], short="some", footprint=0.0
    )
    actual = roofline.floors(workload, limits)
    assert actual == {
        "arithmetic": 2.0,
        "bandwidth": 3.0,
        "random words": 4.0,
        "transcendentals": 0.5,
        "launches": 3.0,
    }
    assert roofline.binding(workload, limits) == ("random words", 4.0)
    large = workload._replace(footprint=roofline.CACHED + 1)
    assert roofline.floors(large, limits)["bandwidth"] == 6.0
