"""Sequential comparisons of algorithms: blocks of seeds, decisions, resuming, and errors."""

import dataclasses
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest
from echo_environment import Echo
from paraboloid_algorithm import PER_ITERATION, paraboloid

import envs
import jaxrl
from jaxrl.cli import compare as command
from jaxrl.cli import main as cli
from jaxrl.report import deciding
from jaxrl.report.contestants import contestants_of
from jaxrl.results.checksums import read_sealed, sealed_json
from jaxrl.results.dataset import ResultError
from jaxrl.results.sequential import Design, PairTest
from jaxrl.runtime.execution import carry_out
from jaxrl.runtime.programs import compilations

ALGO = paraboloid(noise=1.0)
TASK = ALGO.env.name
OPTIONS = {"until": "decided", "env_steps": PER_ITERATION, "eval_episodes": 1, "progress": False}


def at(x, noise=1.0, algo=ALGO):
    """The algorithm at a place, whose mean return is -2 - x^2 + 2 x for x below 3, and NaN above."""
    return algo, dataclasses.replace(algo.hparams, x=x, noise=noise)


def returns_of(comparison, name):
    return np.concatenate([block.values("return")[0, :, -1] for block in comparison.results[name][TASK]])


def kill_at(number, monkeypatch):
    """End the process at a block of seeds."""
    calls = []

    def killed(*args, **kwargs):
        calls.append(args)
        if len(calls) == number:
            raise SystemExit
        return carry_out(*args, **kwargs)

    monkeypatch.setattr(deciding, "carry_out", killed)


@pytest.fixture(scope="module")
def uninterrupted():
    return jaxrl.compare({"one": at(1.0), "same": at(1.0), "far": at(-0.5)}, max_seeds=24, **OPTIONS)


def test_every_pair_is_decided_or_gets_all_seeds(uninterrupted):
    assert uninterrupted.stopped_by_signal == 0
    by_pair = {(each.first, each.second): each for each in uninterrupted.decisions}
    assert by_pair["one", "far"].better == "one" and by_pair["same", "far"].better == "same"
    same = by_pair["one", "same"]
    assert same.better is None and same.seeds == 24 and same.low < 0.0 < same.high and same.p > 0.05
    assert [(each.first, each.second) for each in uninterrupted.undecided] == [("one", "same")]
    far = by_pair["one", "far"]
    assert far.seeds < 24 and far.p <= 0.05 and far.low > 0.0 and far.failed == 0
    values = {name: returns_of(uninterrupted, name) for name in ("one", "same", "far")}
    assert far.difference == pytest.approx(values["one"][: far.seeds].mean() - values["far"][: far.seeds].mean(), 1e-5)
    test = PairTest(Design.of(24, 3))
    for first, last in ((0, 8), (8, 16), (16, 24)):
        test.add(values["one"][first:last], values["same"][first:last])
    assert same.p == pytest.approx(min(1.0, test.p_value()), rel=2e-3)  # one of three pairs can be left
    assert [same.low, same.high] == pytest.approx([float(end) for end in test.interval(0.05 / 3)[1:]])
    trained = {name: len(each) for name, each in values.items()}
    assert trained["one"] == 24 and trained["far"] == max(far.seeds, by_pair["same", "far"].seeds)
    assert uninterrupted.num_runs == sum(trained.values()) and uninterrupted.most_runs == 72


def test_the_table_and_the_text_have_every_pair(uninterrupted):
    frame = uninterrupted.table().to_pandas()
    assert list(frame.columns) == ["task", "first", "second", "better", "difference", "low", "high", "seeds", "p"]
    assert frame["better"].tolist() == ["undecided", "one", "same"]
    text = str(uninterrupted)
    assert "95% interval" in text and "over 3 pairs" in text and text == repr(uninterrupted)
    assert f"Decided 2 of 3 pairs, by {uninterrupted.num_runs} runs of at most 72." in text
    assert "<table" in uninterrupted._repr_html_()
    comparison = jaxrl.compare(uninterrupted.sources(TASK))  # the ordinary one, of the same runs
    assert comparison.table().to_pandas()["seeds"].tolist()[0] == 24


def test_no_two_algorithms_share_a_seed(uninterrupted):
    seeds = [seed for by_task in uninterrupted.results.values() for each in by_task[TASK] for seed in each.seeds]
    assert len(set(seeds)) == len(seeds) == uninterrupted.num_runs and min(seeds) == 1_000_000


def test_a_killed_comparison_continues_bit_for_bit(uninterrupted, tmp_path, monkeypatch):
    call = {"max_seeds": 24, **OPTIONS, "out": tmp_path / "out"}
    algos = {"one": at(1.0), "same": at(1.0), "far": at(-0.5)}
    kill_at(5, monkeypatch)
    with pytest.raises(SystemExit):
        jaxrl.compare(algos, **call)
    monkeypatch.undo()
    resumed = jaxrl.compare(algos, **call)
    assert resumed.decisions == uninterrupted.decisions
    for name in algos:
        np.testing.assert_array_equal(returns_of(resumed, name), returns_of(uninterrupted, name))
    before = compilations()
    assert jaxrl.compare(algos, **call).decisions == uninterrupted.decisions
    assert compilations() == before
    saved = pandas.read_csv(tmp_path / "out" / "decisions.csv")
    pandas.testing.assert_frame_equal(saved, resumed.table().to_pandas(), rtol=1e-12)
    loaded = jaxrl.load_result(tmp_path / "out" / "0-one" / "0-time_limit-Echo-" / "0000008-0000016", ALGO)
    assert loaded.seeds == list(range(1_000_008, 1_000_016))
    with pytest.raises(ResultError, match=r"holds another comparison, which differs in max_seeds: choose another"):
        jaxrl.compare(algos, **{**call, "max_seeds": 32})
    with pytest.raises(
        ResultError, match=r"holds a checkpoint of another configuration: hparams\.x is -0\.5 there and -0\.25 here"
    ):
        jaxrl.compare({**algos, "far": at(-0.25)}, **call)
    tasks = {"near": at(1.0), "far": at(1.0)}
    of_tasks = {**call, "max_seeds": 8, "out": tmp_path / "tasks"}
    jaxrl.compare({"one": tasks, "same": tasks}, **of_tasks)
    turned = dict(reversed(tasks.items()))
    with pytest.raises(ResultError, match=r"holds another comparison, which differs in tasks: choose another"):
        jaxrl.compare({"one": turned, "same": turned}, **of_tasks)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(ResultError, match="is not empty and holds no comparison"):
        jaxrl.compare(algos, **{**call, "out": tmp_path / "full"})


@pytest.mark.parametrize("within", [False, True])
def test_a_signal_ends_the_comparison_and_keeps_finished_blocks(within, tmp_path, monkeypatch):
    trained = []

    def stopped(*args, **kwargs):
        trained.append(args)
        if len(trained) == 3 and within:
            os.kill(os.getpid(), signal.SIGTERM)  # the block ends nevertheless, since it is a single chunk
        result = carry_out(*args, **kwargs)
        if len(trained) == 3 and not within:
            raise KeyboardInterrupt(signal.SIGTERM)
        return result

    monkeypatch.setattr(deciding, "carry_out", stopped)
    call = {"max_seeds": 16, "out": tmp_path / "out", **OPTIONS}
    algos = {"one": at(1.0), "same": at(1.0)}
    with pytest.warns(RuntimeWarning, match="^comparison stopped by SIGTERM; the same call resumes it$"):
        comparison = jaxrl.compare(algos, **call)
    assert comparison.stopped_by_signal == signal.SIGTERM and comparison.decisions[0].seeds == 8
    assert len(trained) == 3
    monkeypatch.undo()
    resumed = jaxrl.compare(algos, **call)
    assert resumed.stopped_by_signal == 0 and resumed.decisions[0].seeds == 16


def test_failed_runs_are_counted_and_a_failing_algorithm_is_not_decided():
    with pytest.warns(RuntimeWarning, match="8 of 8 runs have metrics that are not finite"):
        comparison = jaxrl.compare({"one": at(1.0), "bad": at(9.0)}, max_seeds=8, **OPTIONS)
    (decision,) = comparison.decisions
    assert decision.failed == 8 and decision.better is None and np.isnan(decision.difference)
    assert "failed" in comparison.table().columns


def test_a_baseline_leaves_the_other_pairs_out_and_lower_may_be_better():
    algos = {"one": at(1.0), "far": at(-1.0), "other": at(-1.0)}
    comparison = jaxrl.compare(algos, max_seeds=16, baseline="far", metric="return_sampled", better="lower", **OPTIONS)
    assert comparison.decisions[0].better == "far"
    assert [(each.first, each.second) for each in comparison.decisions] == [("one", "far"), ("far", "other")]


def test_pairs_within_the_margin_are_equal_and_get_no_further_seeds(uninterrupted, tmp_path):
    algos = {"one": at(1.0), "same": at(1.0), "far": at(-0.5)}
    call = {"max_seeds": 48, **OPTIONS, "out": tmp_path / "out"}
    comparison = jaxrl.compare(algos, margin=1.2, **call)
    same = comparison.decisions[0]
    assert same.equal and same.better is None and -1.2 < same.low < 0.0 < same.high < 1.2 and same.seeds == 32
    assert comparison.undecided == [] and comparison.margins == {TASK: 1.2}
    assert comparison.table().to_pandas()["better"].tolist() == ["equal", "one", "same"]
    assert [each.better for each in comparison.decisions[1:]] == ["one", "same"]  # of larger differences
    assert "; equal: interval within ±1.2\n" in str(comparison) and "Decided 3 of 3 pairs" in str(comparison)
    assert jaxrl.compare(algos, margin={TASK: 1.2}, **call).decisions == comparison.decisions
    for margin in (3.0, None):
        with pytest.raises(ResultError, match=r"holds another comparison, which differs in margin: choose another"):
            jaxrl.compare(algos, margin=margin, **call)


def test_a_comparison_of_a_version_without_margins_is_resumed(tmp_path):
    algos, call = {"one": at(1.0), "same": at(1.0)}, {"max_seeds": 32, **OPTIONS, "out": tmp_path}
    decisions = jaxrl.compare(algos, **call).decisions
    saved = read_sealed(tmp_path / "comparison.json")
    assert saved.pop("margin") is None
    (tmp_path / "comparison.json").write_bytes(sealed_json(saved))
    assert jaxrl.compare(algos, **call).decisions == decisions
    with pytest.raises(ResultError, match="differs in margin: choose another"):
        jaxrl.compare(algos, margin=1.0, **call)


def test_a_stopped_comparison_with_a_margin_continues_bit_for_bit(tmp_path, monkeypatch):
    algos = {"one": at(1.0), "same": at(1.0), "far": at(-0.5)}
    call = {"max_seeds": 48, "margin": 1.2, "baseline": "one", **OPTIONS}
    whole = jaxrl.compare(algos, **call)
    assert [each.equal for each in whole.decisions] == [True, False]
    kill_at(6, monkeypatch)
    with pytest.raises(SystemExit):
        jaxrl.compare(algos, out=tmp_path, **call)
    monkeypatch.undo()
    assert jaxrl.compare(algos, out=tmp_path, **call).decisions == whole.decisions


def test_every_task_may_have_a_margin_of_its_own():
    algos = {"one": {"near": at(1.0), "far": at(1.0)}, "other": {"near": at(1.0), "far": at(1.0)}}
    comparison = jaxrl.compare(algos, margin={"near": 50.0, "far": 1e-3}, max_seeds=32, **OPTIONS)
    assert [(each.task, each.equal) for each in comparison.decisions] == [("near", True), ("far", False)]
    assert "; equal: interval within ±50 (near), ±0.001 (far)" in str(comparison)
    with pytest.raises(ValueError, match=r"^margin must have a number for every task, and has none for far$"):
        jaxrl.compare(algos, margin={"near": 50.0}, max_seeds=32, **OPTIONS)
    with pytest.raises(ValueError, match=r"^margin must be a positive number in units of the metric for far, got -1$"):
        jaxrl.compare(algos, margin={"near": 50.0, "far": -1}, max_seeds=32, **OPTIONS)


def test_several_tasks_are_decided_together_and_names_are_numbered(uninterrupted):
    algos = {"one": {"near": at(1.0), "far": at(1.0)}, "other": {"near": at(1.0), "far": at(-1.0)}}
    comparison = jaxrl.compare(algos, max_seeds=16, **OPTIONS)
    near, far = comparison.decisions
    assert (near.task, near.better, near.seeds) == ("near", None, 16) and (far.task, far.better) == ("far", "one")
    assert far.seeds == 8 and len(comparison.results["one"]["near"]) == 2 and len(comparison.results["one"]["far"]) == 1
    assert far.p <= 0.05 and "over 2 pairs" in str(comparison)
    comparison = jaxrl.compare(at(1.0), at(-1.0), max_seeds=8, **OPTIONS)
    assert [(each.first, each.second) for each in comparison.decisions] == [("paraboloid 1", "paraboloid 2")]


def test_names_of_algorithms_take_presets_on_every_task(monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "jaxrl.report.deciding.decide", lambda contestants, **rule: asked.update(contestants=contestants, **rule)
    )
    jaxrl.compare("ppo", "dqn", tasks=["cartpole", "acrobot"], until="decided")
    ppo, dqn = asked["contestants"]
    assert (ppo.name, dqn.name) == ("ppo", "dqn") and list(ppo.trainings) == ["cartpole", "acrobot"]
    assert ppo.trainings["cartpole"].env_steps == dqn.trainings["cartpole"].env_steps == 98_304
    assert ppo.trainings["acrobot"].algo.settings_from == "preset of ppo on acrobot"
    assert asked["max_seeds"] == 512 and asked["metric"] == "return" and asked["confidence"] == 0.95
    jaxrl.compare(jaxrl.preset("ppo", "cartpole"), jaxrl.preset("a2c", "cartpole").algo, until="decided")
    assert [each.name for each in asked["contestants"]] == ["ppo", "a2c"]
    assert asked["contestants"][0].trainings["cartpole"].env_steps == 499_712
    with pytest.warns(
        RuntimeWarning,
        match=r"a2c starts from defaults, and ppo from the preset .*sources\('cartpole'\)\)\.differences lists",
    ):
        defaults = jaxrl.a2c(envs.make("cartpole"))
        jaxrl.compare(jaxrl.preset("ppo", "cartpole"), defaults, until="decided", env_steps=1_000)


@pytest.mark.parametrize(
    ("algos", "options", "kind", "sentence"),
    [
        ((at(1.0),), {}, ValueError, "compare takes at least two algorithms, such as .*, got 1$"),
        ((3, at(1.0)), {}, TypeError, "compare with until='decided' takes algorithms, presets, .*, got 3$"),
        (("ppo", "a2c"), {}, TypeError, r"^tasks must name the tasks of 'ppo', such as "),
        (("ppo", "a2c"), {"tasks": "cartpole"}, TypeError, r"^tasks takes a list of environments .*, got 'cartpole'$"),
        ((ALGO, ALGO), {"env_steps": None}, TypeError, "^compare takes env_steps, the number of environment steps"),
        ((ALGO, ALGO), {"max_seeds": 3}, ValueError, "^max_seeds must be a whole number from 4 to .*, got 3$"),
        (
            (ALGO, ALGO, ALGO),
            {"max_seeds": 4},
            ValueError,
            r"^max_seeds is 4, .* at a confidence of 0\.95 over 3 pairs; it takes at least 5\.$",
        ),
        (
            (ALGO, ALGO),
            {"metric": "lenght"},
            ValueError,
            r"^metric is 'lenght', which .* 1 lacks .*did you mean 'length'",
        ),
        ((ALGO, ALGO), {"metric": "odd", "better": "lower"}, ValueError, "^metric is 'odd', which .*; it has .*return"),
        (
            (ALGO, ALGO),
            {"confidence": 0.9999999},
            ValueError,
            r"^the tests of 1 pair need \S+ GiB of memory, and may take 2:",
        ),
        (("runs/a",), {"until": None, "basline": "x"}, TypeError, "got basline; did you mean 'baseline'"),
        ((ALGO, ALGO), {"margin": 0}, ValueError, "^margin must be a positive number in units of .*, got 0$"),
        ((ALGO, ALGO), {"margin": float("nan")}, ValueError, "^margin must be a positive number in .*, got nan$"),
        ((ALGO, ALGO), {"margin": np.inf}, ValueError, "^margin must be a positive number in units of .*, got inf$"),
        (
            (ALGO, ALGO),
            {"margin": 1.0, "max_seeds": 16},
            ValueError,
            "^margin takes max_seeds of at least 32, got 16: no pair is equal with fewer seeds$",
        ),
        ((ALGO, ALGO), {"margin": "5"}, ValueError, "^margin must be a positive number in units of .*, got '5'$"),
        ((ALGO, ALGO), {"margin": {"cartpol": 5.0}}, ValueError, "^margin has the task 'cartpol'; it takes "),
        ((ALGO, ALGO), {"margin": 1.0, "until": None, "eval_episodes": None}, TypeError, "^margin takes effect only"),
        ((ALGO, ALGO), {"metric": "length"}, ValueError, "^better must be 'higher' or 'lower' for 'length'"),
        ((ALGO, ALGO), {"metric": "discounted_return"}, ValueError, "^metric is 'discounted_return', which every"),
        ((ALGO, ALGO), {"baseline": "paraboloid"}, ValueError, "^baseline is 'paraboloid'; did you mean"),
        ((ALGO, ALGO), {"normalise": {"Echo": (0, 1)}}, TypeError, "^normalise has no effect with until='decided'"),
        ((ALGO, ALGO), {"until": "sure"}, ValueError, "^until must be|^until takes"),
        ((ALGO, ALGO), {"resume": True}, TypeError, "^compare takes .*, and the options .*, got resume"),
        ((ALGO, (ALGO, jaxrl.grid(ALGO.hparams, {"x": [0.0, 1.0]}))), {}, TypeError, "^compare takes hyper-parameters"),
        (({"one": [ALGO, ALGO], "two": [ALGO]},), {}, ValueError, "^one is on one task twice"),
        ((ALGO, jaxrl.preset("ppo", "cartpole")), {}, ValueError, "^the algorithms must be on the same tasks: "),
        (([ALGO], [ALGO]), {"tasks": ["cartpole"]}, TypeError, "^tasks has no effect on algorithms that have tasks"),
        (
            (ALGO, paraboloid(steps=2)),
            {},
            ValueError,
            r"^the algorithms must be on one environment of time_limit\(Echo\)",
        ),
        (({"a": [], "b": []},), {}, TypeError, r"^an algorithm on several tasks takes .*, got \[\]$"),
        (
            ({"a": [[ALGO, ALGO]], "b": ALGO},),
            {},
            TypeError,
            "^an algorithm on several tasks .* list or dictionary in it$",
        ),
        ((ALGO, ALGO), {"until": None}, TypeError, "^eval_episodes takes effect only with until='decided', got 1$"),
    ],
)
def test_bad_arguments_get_one_sentence(algos, options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        jaxrl.compare(*algos, **{**OPTIONS, **options})


@dataclasses.dataclass(frozen=True)
class Rewarded(Echo):
    """An environment with a function, which is equal only to itself, and with a number."""

    function: Callable[[float], float] = abs
    scale: Any = 1


def test_environments_with_equal_functions_are_one_and_those_with_other_numbers_are_not():
    def on(env):
        return ALGO._replace(env=env)

    for one, other in (
        (Rewarded(function=lambda x: x), Rewarded(function=lambda x: x)),
        (Rewarded(scale=1), Rewarded(scale=np.ones(()))),
    ):
        assert len(contestants_of([on(one), on(other)], None, PER_ITERATION)) == 2
    with pytest.raises(ValueError, match=r"on one environment of Rewarded, got some with other settings$"):
        contestants_of([on(Rewarded(scale=1)), on(Rewarded(scale=2))], None, PER_ITERATION)


def test_results_take_one_argument():
    with pytest.raises(
        TypeError,
        match=r"^compare takes results in one list or dictionary, and then 'benchmark', .*got 2 arguments; .*until",
    ):
        compare: Any = jaxrl.compare
        compare("runs/one", "runs/two")


@dataclasses.dataclass
class Decisions:
    """Text in place of decisions."""

    stopped_by_signal: int

    def __str__(self) -> str:
        return f"decisions, {self.stopped_by_signal}"


def test_the_command_passes_its_options_and_prints_the_decisions(monkeypatch, capsys):
    asked = {}

    def compare(*algos, **options):
        asked.update(algos=algos, **options)
        return Decisions(15 * ("a2c" in algos))

    monkeypatch.setattr(command, "compare", compare)
    words = "compare ppo dqn --until decided --tasks cartpole acrobot --max-seeds 64 --memory 1GiB --no-progress"
    words += " --margin cartpole=25 acrobot=5"
    assert cli.main(words.split()) == 0
    assert asked["algos"] == ("ppo", "dqn") and asked["tasks"] == ["cartpole", "acrobot"]
    assert asked["max_seeds"] == 64 and asked["progress"] is False and asked["memory"] == "1GiB"
    assert "block" not in asked and asked["until"] == "decided"
    assert asked["margin"] == {"cartpole": 25.0, "acrobot": 5.0}
    assert cli.main(["compare", "ppo", "a2c", "--until", "decided", "--tasks", "cartpole"]) == 143
    assert capsys.readouterr().out == "decisions, 0\ndecisions, 15\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ppo a2cc --until decided --tasks cartpole", "There is no algorithm 'a2cc'; did you mean 'a2c'?"),
        ("ppo a2c --until decided", "--until decided takes --tasks with the environments to train on"),
        ("ppo a2c --margin 8", "--margin has an effect only with --until decided; leave it out"),
        (
            "ppo a2c --until decided --tasks cartpole --margin 5%",
            "--margin takes a number, such as 25, or TASK=",
        ),
        (
            "ppo a2c --until decided --tasks cartpole --margin cartpole=2 cartpole=3",
            "--margin takes one number, or TASK=MARGIN for each task, got cartpole=2 cartpole=3",
        ),
        ("ppo a2c --max-seeds 8", "--max-seeds has an effect only with --until decided; leave it out"),
        ("ppo a2c --until decided --tasks cartpole --level 1", "--level has no effect with --until decided"),
        ("ppo a2c --until decided --tasks cartpole --trust", "--trust has no effect with --until decided"),
    ],
)
def test_bad_commands_get_one_sentence(words, sentence, capsys):
    assert cli.main(["compare", *words.split()]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


@pytest.mark.slow
def test_ppo_and_a2c_are_decided_on_cartpole():
    comparison = jaxrl.compare(
        "ppo", "a2c", tasks=["cartpole"], env_steps=50_000, until="decided", max_seeds=128, progress=False
    )
    assert [decision.better for decision in comparison.decisions] == ["ppo"]
