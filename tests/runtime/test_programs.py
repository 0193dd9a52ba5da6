"""The programs of a call: their creation and its side effects."""

import gc
from typing import Any

import pytest

import envs
import jaxrl


@pytest.mark.slow_rows("False")
@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_rests_while_programs_are_made_and_is_then_as_it_was(
    monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    seen = []

    def fail(*_: Any) -> None:
        seen.append(gc.isenabled())
        raise RuntimeError("no compiler")

    monkeypatch.setattr("jaxrl.runtime.programs.compile_programs", fail)
    config = jaxrl.PPOConfig(num_envs=2, num_steps=8, num_epochs=1, num_minibatches=1, hidden=(3,))
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="no compiler"):
            jaxrl.train(jaxrl.ppo(envs.make("cartpole"), config), seeds=1, env_steps=16, progress=False)
        assert seen == [False]
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
