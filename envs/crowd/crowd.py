"""A crowd of pedestrians as an environment: the other modules of this package combined."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs.arguments import check_choice, check_count
from envs.base import Environment, MetricRule, spaces
from envs.crowd import dynamics, energy, measures, neighbours, observations, presets, rays, rewards, scenarios, spawning
from envs.crowd.dynamics import Dynamics
from envs.crowd.observations import Frame, Perception
from envs.crowd.pairs import Search
from envs.crowd.params import CrowdParams, Range, draw_traits, switched
from envs.crowd.rewards import Outcome
from envs.crowd.scenarios import Scenario
from envs.crowd.simulation import Physics, Simulated, simulate
from envs.crowd.state import CrowdState, Walkers
from envs.errors import UserValueError
from envs.pytrees import Number

__all__ = ["Crowd"]


class Unbounded(spaces.Box):
    """All real vectors of a shape; samples are standard normal."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(-jnp.inf, jnp.inf, shape, jnp.float32)

    def sample(self, key: jax.Array) -> jax.Array:
        """Standard normal numbers."""
        return jax.random.normal(key, self.shape)


@dataclasses.dataclass(frozen=True)
class Crowd(Environment):
    """Pedestrians who walk to their goals in a shared space; each pedestrian is an agent.

    An episode has a fixed length. An agent that touches its own goal stands still from then on, does not block the
    others, is no longer active, and receives no more reward; the same holds before its entry, where a scenario has
    times of entry. Actions are unbounded and squashed by the environment; observations are dictionaries by perception:
    "own" `[N, 9 | 13]`, "neighbours" `[N, K, 4 | 5]`, "neighbours_present" `[N, K]`, "rays"
    `[N, stack * R * features]`, oldest first.

    `info["metrics"]` has the entries of `measures.episode_metrics` and `contacts`, an agent's contacts summed over
    substeps; `overflow`, the number of agents left out of lists; and `reward_<term>`, each term's weighted sum. All are
    means over the agents that take part.

    Attributes:
      scenario: Name in `scenarios.SCENARIOS`, or a user-defined `Scenario`.
      num_agents: Largest number of agents that can take part, N; a parameter sets how many do.
      preset: Paper whose settings replace fields that are None and whose numbers `default_params` has: "2022" or
        "2023", or the number.
      perception: Senses: "neighbours", "rays" (which see agents and walls), or "both" (rays see walls only).
      frame: Frame of observations: "absolute", "relative" or "egocentric".
      dynamics: Dynamics: "cartesian-velocity", "cartesian-acceleration", "polar-velocity" or "polar-acceleration".
      num_neighbours: Number of observed neighbours, K; the preset's by default, at most the number of other agents.
      num_rays: Number of rays, R; 21 by default where the perception has rays.
      stack: Number of decisions whose rays are observed together; 4 by default where the perception has rays.
      tags: Whether rays distinguish agents from walls.
      reward: Name in `presets.REWARDS`, whose weights `default_params` has; None for the preset's weights.
      obstacles: Whether the scenario has its own obstacles; by default not on a circle in 2022.
      extended: Whether an agent observes its energy constants, the time, and the masses of others.
      remove_globals: Whether the agent's own position is hidden.
      energy_from: Velocity that energies and rewards are computed from: "commanded", before contacts, or "moved".
      backwards: Whether polar acceleration may go backwards for a substep.
      substeps: Number of substeps per decision.
      iterations: Largest number of contact iterations per substep; None for the dynamics' own.
      search: Method for finding agents near each other.
      capacity: Size of an agent's list of the agents that it may touch, if lists are used.
      end_when_all_arrived: Whether to terminate an episode once all agents have arrived.

    Source: Kwiatkowski et al. (2023), "Understanding reinforcement learned crowds"; Kwiatkowski et al. (2023),
    "Reward function design for crowd simulation via reinforcement learning".
    """

    scenario: str | Scenario = "circle"
    num_agents: int = 12
    preset: str = "2022"
    perception: Perception = "neighbours"
    frame: Frame = "egocentric"
    dynamics: Dynamics = "polar-acceleration"
    num_neighbours: int | None = None
    num_rays: int | None = None
    stack: int | None = None
    tags: bool = False
    reward: str | None = None
    obstacles: bool | None = None
    extended: bool | None = None
    remove_globals: bool = False
    energy_from: str | None = None
    backwards: bool | None = None
    substeps: int = 10
    iterations: int | None = None
    search: Search = "auto"
    capacity: int = 12
    end_when_all_arrived: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.preset, int):
            object.__setattr__(self, "preset", str(self.preset))
        settings = presets.preset(self.preset)
        check_choice("perception", self.perception, observations.PERCEPTIONS)
        check_choice("frame", self.frame, observations.FRAMES)
        check_choice("dynamics", self.dynamics, dynamics.DYNAMICS)
        self._default("energy_from", settings.energy_from)
        if self.reward is not None:
            presets.reward_variant(self.reward)
        check_choice("energy_from", str(self.energy_from), ("commanded", "moved"))
        self._default("backwards", settings.backwards)
        self._default("extended", settings.extended)
        check_count("num_agents", self.num_agents)
        others = max(self.num_agents - 1, 1)
        if self.perception == "rays":
            self._refuse("num_neighbours")
        else:
            self._default("num_neighbours", min(settings.num_neighbours, others))
            check_count("num_neighbours", self.num_neighbours)
            if (self.num_neighbours or 0) > others:
                raise UserValueError(
                    f"num_neighbours must be at most the number of other agents, {others}, got {self.num_neighbours}"
                )
        for name, usual in (("num_rays", 21), ("stack", 4)):
            if self.perception == "neighbours":
                self._refuse(name)
            else:
                self._default(name, usual)
                check_count(name, getattr(self, name))
        if self.tags and self.perception == "neighbours":
            raise UserValueError("tags has no effect with perception='neighbours'; leave it out")
        if isinstance(self.scenario, Scenario):
            if self.obstacles not in (None, self.scenario.obstacles):
                raise UserValueError(
                    f"obstacles is {self.obstacles}, but {self.scenario.obstacles} in the scenario; leave it out"
                )
            self._default("obstacles", self.scenario.obstacles)
        else:
            self._default("obstacles", settings.circle_obstacles or self.scenario != "circle")
        _ = self.physics
        radius = CrowdParams.radius * settings.size_mass[1] ** (1 / 3)
        self._scene.check(self.num_agents, radius)

    def _default(self, name: str, value: object) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _refuse(self, name: str) -> None:
        if getattr(self, name) is not None:
            raise UserValueError(f"{name} has no effect with perception={self.perception!r}; leave it out")

    @property
    def name(self) -> str:
        """The name that `envs.make` takes, such as `crowd/circle`; not accepted for a user-defined scenario."""
        return f"crowd/{self._scene.name}"

    @property
    def physics(self) -> Physics:
        """The static settings of the mechanics."""
        return Physics(
            self.dynamics,
            substeps=self.substeps,
            backwards=bool(self.backwards),
            iterations=self.iterations,
            search=self.search,
            capacity=self.capacity,
        )

    @property
    def _scene(self) -> Scenario:
        return scenarios.as_scenario(self.scenario, bool(self.obstacles))

    @property
    def default_params(self) -> CrowdParams:
        """The preset's parameters."""
        settings = presets.preset(self.preset)
        place = self._scene.default_params
        if isinstance(place, scenarios.CircleParams):
            place = scenarios.CircleParams(settings.circle_radius, settings.circle_noise)
        walls_only = self.perception == "both"
        weights = presets.Curriculum(settings.weights, settings.weights)
        if self.reward is not None:
            weights = presets.reward_variant(self.reward)
        return CrowdParams(
            num_present=self.num_agents,
            scenario=place,
            weights=weights.weights,
            later_weights=weights.later_weights,
            switch_env_steps=weights.switch_env_steps,
            ramp_env_steps=weights.ramp_env_steps,
            size_mass=Range(*settings.size_mass),
            resting=Range(*settings.resting),
            walking=Range(*settings.walking),
            max_speed=settings.max_speed,
            max_acceleration=settings.max_acceleration,
            turn_rate=settings.turn_rate,
            dt=settings.dt,
            ray_length=settings.wall_ray_length if walls_only else settings.ray_length,
            field_of_view=math.radians(80 if walls_only else 90),
            max_steps_in_episode=CrowdParams.max_steps_in_episode
            + math.ceil(self._scene.last_entry / (settings.dt * self.substeps)),
        )

    @property
    def metric_rules(self) -> Mapping[str, MetricRule]:
        """Sums of contacts, overflows and rewards; the values at the end for all other metrics."""
        return {**measures.RULES, **{f"reward_{term}": "sum" for term in rewards.TERMS}}

    def params_at(self, params: CrowdParams, env_steps: Number) -> CrowdParams:
        """The parameters after this many environment steps of training.

        The weights change to the later ones at `switch_env_steps`, or from there along a line over `ramp_env_steps`.
        """
        return switched(params, env_steps)

    def pays_beyond_limit(self, params: CrowdParams) -> bool:
        """Whether `final` or `avg_final`, which pay for the rest of the way at the time limit, has a weight."""
        stages = (params.weights, params.later_weights)
        return any(np.any(np.asarray(each) != 0) for stage in stages for each in (stage.final, stage.avg_final))

    def check_params(self, params: CrowdParams) -> None:
        """Reject more participants than agents, or than fit into the starting places."""
        present = np.atleast_1d(params.num_present)
        wrong = present[(present < 1) | (present > self.num_agents)]
        if len(wrong):
            raise UserValueError(
                f"env.num_present must lie between 1 and num_agents, {self.num_agents}, got {wrong[0]}"
            )
        widest = np.asarray(params.radius) * np.cbrt(params.size_mass.high)
        for count, radius in zip(*np.broadcast_arrays(present, widest), strict=True):
            self._scene.check(int(count), float(radius))

    def reset_env(self, key: jax.Array, params: CrowdParams) -> tuple[dict[str, jax.Array], CrowdState]:
        """The first observations and state, with all agents standing."""
        traits_key, place_key = jax.random.split(key)
        traits = draw_traits(traits_key, params, self.num_agents)
        present = jnp.arange(self.num_agents) < params.num_present
        scene = self._scene.place(place_key, params.scenario, present, traits)
        scene = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), scene)
        position = scene.position
        still, none = jnp.zeros_like(position), jnp.zeros(self.num_agents, jnp.float32)
        distance = _length(scene.goals.centre - position)
        waiting = None
        if scene.entry is not None:
            waiting = present & (scene.entry > 0)
            soon = jnp.float32(params.dt) * self.substeps / 2
            waiting &= ~spawning.enter(position, traits.radius, waiting, present & ~waiting, scene.entry, soon)
        state = CrowdState(
            time=jnp.zeros((), jnp.int32),
            walkers=Walkers(position, velocity=still, heading=dynamics.wrap(scene.heading), speed=none),
            traits=traits,
            goals=scene.goals,
            obstacles=scene.obstacles,
            present=present,
            arrived=jnp.zeros(self.num_agents, bool),
            start_distance=distance,
            distance=distance,
            arrival_time=none,
            previous_velocity=still,
            frames=self._no_frames(),
            totals={},
            entry=scene.entry,
            waiting=waiting,
        )
        state = dataclasses.replace(state, totals=measures.start_totals(state, self.search))
        return self._observe(state, params)

    def step_env(
        self, key: jax.Array, state: CrowdState, action: jax.Array, params: CrowdParams
    ) -> tuple[dict[str, jax.Array], CrowdState, jax.Array, jax.Array, dict[Any, Any]]:
        """One decision: `[N, 2]` actions, held for its substeps."""
        del key
        walking, traits = state.walking, state.traits
        dt, turn_rate = jnp.float32(params.dt), jnp.float32(params.turn_rate)
        interval = dt * self.substeps
        control = dynamics.squash(self.dynamics, action)
        done = simulate(
            self.physics, state.walkers, control, traits, walking, state.goals, state.obstacles, turn_rate, dt
        )
        velocity, mean_square = self._motion(state, done)
        time = state.time + 1
        begun, elapsed = state.time * interval, time * interval
        if state.waiting is not None:  # times since each agent's entry
            begun = state.totals["walked"]
            elapsed = begun + done.duration
        distance = jnp.where(walking, _length(state.goals.centre - done.walkers.position), state.distance)
        at_limit = self.is_truncated(dataclasses.replace(state, time=time), params)
        outcome = Outcome(
            walking=walking,
            arrived=done.arrived,
            duration=done.duration,
            velocity=velocity,
            mean_square=mean_square,
            previous_velocity=state.previous_velocity,
            towards=_unit(state.goals.centre - state.walkers.position),
            before=state.distance,
            after=distance,
            start_distance=state.start_distance,
            touches=done.touches,
            at_limit=at_limit,
            elapsed=elapsed,
            interval=interval,
            traits=traits,
        )
        reward, shares = rewards.reward(params.weights, outcome)
        state = dataclasses.replace(
            state,
            time=time,
            walkers=done.walkers,
            obstacles=done.obstacles,
            arrived=state.arrived | done.arrived,
            distance=distance,
            arrival_time=jnp.where(done.arrived, begun + done.duration, state.arrival_time),
            previous_velocity=velocity,
            totals=measures.update_totals(
                state.totals,
                power=energy.power(mean_square, traits),
                dynamic_power=energy.dynamic_power(velocity, state.previous_velocity, traits, interval),
                duration=done.duration,
                travelled=done.travelled,
                deepest=done.deepest,
                minimum_distance=measures.nearest(done.walkers.position, walking & ~done.arrived, self.search),
            ),
        )
        if state.waiting is not None:
            entered = spawning.enter(
                done.walkers.position, traits.radius, state.waiting, state.walking, state.entry, (time + 0.5) * interval
            )
            state = dataclasses.replace(state, waiting=state.waiting & ~entered)
        count = jnp.maximum(jnp.sum(state.present), 1)
        metrics = measures.episode_metrics(state, outcome.elapsed) | {
            "contacts": jnp.sum(done.touches) / count,
            "overflow": done.overflow.astype(jnp.float32),
            **{f"reward_{term}": jnp.sum(share) / count for term, share in shares.items()},
        }
        terminated = jnp.all(~state.on_the_way) if self.end_when_all_arrived else jnp.zeros((), bool)
        info = {"active": walking, "agent_terminated": state.arrived, "metrics": metrics}
        obs, state = self._observe(state, params)
        return obs, state, reward, terminated, info

    def global_observation(self, state: CrowdState, params: CrowdParams) -> dict[str, jax.Array]:
        """Each agent's own state in the absolute frame, whatever the agents observe, and the boxes.

        Returns:
          "agents" `[N, 13]`, the vectors of `observations.own_vector` with its energy constants, 0 for agents that do
          not take part; "agents_present" `[N]`, 1 for those that do; and, where there are boxes, "boxes" `[M, 4]`:
          centre / 10 (2), velocity / 2 (2).
        """
        share = jnp.float32(state.time) / params.max_steps_in_episode
        rows = observations.own_vector(
            "absolute", state.walkers, state.goals, state.traits, state.arrived, share, energy=True
        )
        seen = {
            "agents": jnp.where(state.present[:, None], rows, 0.0),
            "agents_present": state.present.astype(jnp.float32),
        }
        boxes = state.obstacles
        if not len(boxes.box_centre):
            return seen
        return seen | {"boxes": jnp.concatenate([boxes.box_centre / 10, boxes.box_velocity / 2], axis=-1)}

    def action_space(self, params: CrowdParams | None = None) -> spaces.Box:
        """Two real numbers, squashed by the environment: (x, z), or (turn, forward) in polar dynamics."""
        del params
        return Unbounded((2,))

    def observation_space(self, params: CrowdParams) -> spaces.Dict:
        """The space of one agent's observations."""
        del params
        parts: dict[str, spaces.Space] = {"own": Unbounded((13 if self.extended else 9,))}
        if self.num_neighbours is not None:
            parts["neighbours"] = Unbounded((self.num_neighbours, 5 if self.extended else 4))
            parts["neighbours_present"] = spaces.Box(0.0, 1.0, (self.num_neighbours,), jnp.float32)
        if self.num_rays is not None and self.stack is not None:
            parts["rays"] = spaces.Box(0.0, 1.0, (self.stack * self._frame_size,), jnp.float32)
        return spaces.Dict(parts)

    def _motion(self, state: CrowdState, done: Simulated) -> tuple[jax.Array, jax.Array]:
        """The mean velocity `[N, 2]` and mean squared speed `[N]` of a decision, 0 for agents that did not walk."""
        if self.energy_from == "commanded":
            way, square = done.commanded, done.commanded_square
        else:
            way, square = done.walkers.position - state.walkers.position, done.moved_square
        walked = done.duration > 0
        duration = jnp.where(walked, done.duration, 1.0)
        return jnp.where(walked[:, None], way / duration[:, None], 0.0), jnp.where(walked, square / duration, 0.0)

    @property
    def _frame_size(self) -> int:
        return (self.num_rays or 0) * (4 if self.tags else 2)

    def _no_frames(self) -> jax.Array | None:
        if self.stack is None:
            return None
        return jnp.zeros((self.num_agents, self.stack, self._frame_size), jnp.float32)

    def _observe(self, state: CrowdState, params: CrowdParams) -> tuple[dict[str, jax.Array], CrowdState]:
        """The observations, and the state with the stacked rays."""
        walkers, traits, extended = state.walkers, state.traits, bool(self.extended)
        share = jnp.float32(state.time) / params.max_steps_in_episode
        obs = {
            "own": observations.own_vector(
                self.frame, walkers, state.goals, traits, state.arrived, share, extended, self.remove_globals
            )
        }
        if self.num_neighbours is not None:
            seen = neighbours.nearest(
                walkers.position,
                walkers.heading,
                state.walking,
                jnp.float32(params.sight_radius),
                jnp.float32(params.sight_angle),
                self.num_neighbours,
                self.search,
            )
            obs["neighbours"] = observations.rows(self.frame, walkers, traits, seen, extended)
            obs["neighbours_present"] = seen.valid.astype(jnp.float32)
        if self.num_rays is not None:
            hits = rays.cast(
                walkers.position,
                walkers.heading,
                traits.radius,
                state.walking,
                state.obstacles,
                jnp.float32(params.ray_length),
                jnp.float32(params.field_of_view),
                self.num_rays,
                see_agents=self.perception == "rays",
                tags=self.tags,
            )
            hits = hits.reshape(self.num_agents, 1, self._frame_size)
            frames = jnp.concatenate([state.frames[:, 1:], hits], axis=1)
            state = dataclasses.replace(state, frames=frames)
            obs["rays"] = frames.reshape(self.num_agents, -1)
        return obs, state


def _length(vector: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(vector * vector, axis=-1))


def _unit(vector: jax.Array) -> jax.Array:
    """Vectors of length 1, or 0 for vectors of length 0."""
    length = _length(vector)[..., None]
    return vector / jnp.where(length > 0, length, 1.0)
