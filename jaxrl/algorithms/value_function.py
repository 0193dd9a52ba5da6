"""Values of actions under a discount: their network, targets, and one gradient step towards them."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from envs.errors import UserValueError
from jaxrl.algorithms.contract import Metrics
from jaxrl.checks import is_concrete
from jaxrl.discounts.form import to_host
from jaxrl.discounts.mixtures import head_sizes, with_nodes
from jaxrl.discounts.parsing import LONGEST_EPISODE, Prepared, discount_name, prepare
from jaxrl.learning import value_losses
from jaxrl.learning.actor import memories
from jaxrl.learning.losses import weighted_mean
from jaxrl.learning.networks import Module, apply_over, zeros
from jaxrl.learning.optimisers import Optimiser, transformation
from jaxrl.learning.q_targets import mixture_values, n_step_targets, of_actions
from jaxrl.learning.recurrent import first_memory, is_recurrent
from jaxrl.learning.replay import Window
from jaxrl.learning.sequences import Recalled, after_windows, recalled_outputs, unroll_rows
from jaxrl.pytrees import Action, DiscountLike, HParams, Memory, Params, PyTree

_LONGEST = 2048  # largest number of steps over which the exponentials are fitted to the discount
_SHORTFALL = 1e-3  # least reported difference between their curve and the curve of the discount

__all__ = ["Nodes", "Target", "ValueFunction", "prepare_discount", "row_errors", "window_atoms"]


class Nodes(NamedTuple):
    """The exponentials of a discount, each `[K]`.

    Attributes:
      rates: Rates of the exponentials.
      sizes: Scales of the values under each rate; a network's outputs are values divided by these.
      shares: Weights of the outputs in a value, which sum to 1.
    """

    rates: jax.Array
    sizes: jax.Array
    shares: jax.Array

    @staticmethod
    def of(discount: Prepared) -> "Nodes":
        """The exponentials of a prepared discount."""
        sizes = head_sizes(discount)
        weights = jnp.asarray(discount.weights, jnp.float32)
        return Nodes(jnp.asarray(discount.rates, jnp.float32), sizes, weights * sizes)


class Target(NamedTuple):
    """Distributions of values under each exponential: atoms and probabilities, `[*B, K, M]`."""

    atoms: jax.Array
    probabilities: jax.Array


def outputs_of(config: Any) -> tuple[value_losses.ValueLoss, int]:
    """Value loss of a configuration with `value_loss`, `num_atoms`, `heads` and `num_heads`, and number of heads."""
    loss = value_losses.value_loss(config.value_loss, config.num_atoms)
    return loss, 1 if config.heads == "single" else config.num_heads


class ValueFunction(NamedTuple):
    """Values of actions by one network, or by an ensemble of C networks, whose arrays have a leading axis `[C]`.

    Attributes:
      network: Network whose outputs represent a value of an observation joined with an action, or the value of each
        action, of an observation; of the shape `shape`, or of another one with as many numbers in the same order.
      loss: Representation and loss of values.
      num_heads: Number of exponentials K of the discount.
      num_actions: Number of actions whose values are the outputs for an observation; None where inputs contain the
        action.
      num_members: Number of networks C of an ensemble; None for one network, without the axis.
      takes_pairs: Whether inputs are pairs of an observation and an action, which the network takes as two arguments.
      optimiser: Factory of the optimiser, None for Adam.
      branches: Numbers of choices of the D parts of an action, which are `num_actions` together: each part has values
        of its own, and their mean is the value of the action; None for one choice.

    Source: Tavakoli, Pardo and Kormushev (2018), arXiv 1711.08946, for several choices.
    """

    network: Module
    loss: value_losses.ValueLoss
    num_heads: int
    num_actions: int | None
    num_members: int | None = None
    takes_pairs: bool = False
    optimiser: Optimiser = None
    branches: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the outputs for one input, `[num_actions, K, num_outputs]`, without axes that do not apply."""
        numbers = tuple(number for number in (self.num_heads, self.loss.num_outputs) if number > 1)
        return numbers if self.num_actions is None else (self.num_actions, *numbers)

    def init(self, key: jax.Array, shapes: PyTree) -> Params:
        """Parameters, from the shapes of one input of the network."""
        examples = (zeros(shapes), first_memory(self.network)) if self.remembers else self._arguments(zeros(shapes))
        if self.num_members is None:
            return self.network.init(key, *examples)
        keys = jax.random.split(key, self.num_members)
        return jax.vmap(self.network.init, in_axes=(0, *[None] * len(examples)))(keys, *examples)

    def outputs(self, params: Params, inputs: PyTree, num_axes: int) -> jax.Array:
        """Outputs for inputs with `num_axes` leading axes, `[*B, K, num_outputs]` or `[*B, num_actions, K, ...]`.

        A network with a memory takes `Sequences`, whose rows have these axes, or `Recalled` inputs.
        """
        return self.recalled(params, inputs, num_axes)[0]

    def recalled(self, params: Params, inputs: PyTree, num_axes: int) -> tuple[jax.Array, Memory]:
        """Outputs as of `outputs`, and the memories after each input, leaves `[*B, ...]`, or `[C, *B, ...]`."""

        def of_one(params: Params, inputs: PyTree) -> tuple[jax.Array, Memory]:
            if self.remembers:
                return recalled_outputs(self.network, params, inputs, num_axes)
            obs, *others = self._arguments(inputs)
            return apply_over(self.network, params, obs, num_axes, *others), ()

        outputs, memory = self._of_each(of_one)(params, inputs)
        leading = outputs.shape[: num_axes + (self.num_members is not None)]
        actions = () if self.num_actions is None else (self.num_actions,)
        return outputs.reshape(*leading, *actions, self.num_heads, self.loss.num_outputs), memory

    @property
    def remembers(self) -> bool:
        """Whether the network has a memory."""
        return is_recurrent(self.network)

    @property
    def initial_memory(self) -> Memory:
        """Memory of one agent at the start of an episode, leaves `[...]`, of C networks `[C, ...]`."""
        memory = first_memory(self.network)
        return memory if self.num_members is None else memories(memory, (self.num_members,))

    def around(self, params: Params, sequences: PyTree) -> tuple[Memory, Memory]:
        """Memories before and after each row of sequences, leaves `[T * B, *A, ...]`, or `[C, T * B, *A, ...]`."""
        return self._of_each(lambda params, inputs: unroll_rows(self.network, params, inputs)[1:])(params, sequences)

    def after(self, params: Params, inputs: PyTree, next_inputs: PyTree) -> Any:
        """Inputs after windows with the memories there, which no reset has changed; `next_inputs` without memory.

        Args:
          params: Parameters.
          inputs: Inputs of the rows, where windows begin; `Sequences` for a network with a memory.
          next_inputs: Inputs that follow the windows, leaves `[*B, ...]`.
        """
        if not self.remembers:
            return next_inputs
        memories_of = self._of_each(lambda params, inputs: after_windows(self.network, params, inputs))
        return Recalled(next_inputs, memories_of(params, inputs))

    def _of_each(self, function: Callable[[Params, Any], Any]) -> Callable[[Params, Any], Any]:
        """Function of parameters and inputs applied to each network, with a memory of its own."""
        if self.num_members is None:
            return function

        def of_all(params: Params, inputs: PyTree) -> Any:
            axes: Any = None
            if self.remembers:
                count = len(jax.tree.leaves(params)[0])  # fewer where only the first networks are asked
                memory = jax.tree.map(lambda leaf: leaf[:count], inputs.memory)
                if isinstance(inputs, Recalled):
                    inputs, axes = inputs._replace(memory=memory), Recalled(None, 0)
                else:
                    inputs = inputs.replace(memory=memory)
                    axes = inputs.replace(inputs=None, reset=None, memory=0, action=None, last=None)
            return jax.vmap(function, in_axes=(0, axes))(params, inputs)

        return of_all

    def _arguments(self, inputs: PyTree) -> tuple[Any, ...]:
        return inputs if self.takes_pairs else (inputs,)

    def taken(self, params: Params, inputs: PyTree, action: Action, num_axes: int) -> jax.Array:
        """Outputs for the actions taken, `[*B, K, num_outputs]`; of several choices those of each, `[*B, D, ...]`.

        Args:
          params: Parameters.
          inputs: Inputs of the network, leaves `[*B, ...]`.
          action: Actions, int32 `[*B]` or `[*B, D]`; None where the inputs contain them.
          num_axes: Number of leading axes of the inputs.
        """
        outputs = self.outputs(params, inputs, num_axes)
        if action is None:
            return outputs
        members = () if self.num_members is None else (None,)
        index = (
            action[(*members, ..., None, None, None)] if self.branches is None else action[(*members, ..., None, None)]
        )
        return of_actions(outputs, index, self.branches, -3)

    def following(self, outputs: jax.Array, action: jax.Array, scale: value_losses.Scale) -> Target:
        """Distribution of the value of actions that each rate chooses; of several choices, the mean of their values.

        Args:
          outputs: Outputs for every action, `[*B, num_actions, K, num_outputs]`.
          action: Action of each rate, int32 `[*B, K]` or `[*B, D, K]`.
          scale: Parameters of the value loss.

        Returns:
          Atoms and probabilities, `[*B, K, M]`. A distribution of several choices is a mixture, of D times the atoms.
        """
        index = action[..., None, :, None] if self.branches is None else action[..., None]
        target = Target(*self.loss.distribution(of_actions(outputs, index, self.branches, -3), scale))
        if self.branches is None:
            return target
        if target.atoms.shape[-1] == 1:  # numbers
            return Target(*(jnp.mean(leaf, axis=-3) for leaf in target))
        atoms, probabilities = (jnp.moveaxis(leaf, -3, -2) for leaf in target)
        rows = (*atoms.shape[:-2], -1)
        return Target(atoms.reshape(rows), probabilities.reshape(rows) / len(self.branches))

    def following_values(self, values: jax.Array, action: jax.Array) -> jax.Array:
        """Values `[*B, K]` of actions that each rate chooses, as `following`, from values `[*B, num_actions, K]`."""
        if self.branches is None:
            return of_actions(values, action[..., None, :], None, -2)
        return jnp.mean(of_actions(values, action, self.branches, -2), axis=-2)

    def over_branches(self, values: jax.Array) -> jax.Array:
        """Means over the parts of actions, `[*B]`, of numbers `[*B, D]`; the same numbers for one choice."""
        return values if self.branches is None else jnp.mean(values, axis=-1)

    def value(self, outputs: jax.Array, shares: jax.Array, scale: value_losses.Scale) -> jax.Array:
        """Values under the discount, `[*B]`."""
        return mixture_values(self.loss.value(outputs, scale), shares)

    def descend(
        self,
        params: Params,
        optimiser: optax.OptState,
        inputs: PyTree,
        action: Action,
        target: Target,
        active: jax.Array,
        weight: jax.Array,
        shares: jax.Array,
        scale: value_losses.Scale,
        hparams: HParams,
        lr: jax.Array | float,
    ) -> tuple[Params, optax.OptState, jax.Array, Metrics]:
        """One step of the optimiser towards a target.

        Args:
          params: Parameters.
          optimiser: State of the optimiser.
          inputs: Inputs of the network, leaves `[*B, ...]`; `Sequences` for one with a memory.
          action: Actions taken, int32 `[*B]` or `[*B, D]`; None where the inputs contain them.
          target: Target, `[*B, K, M]`, also of each part of an action.
          active: Whether an agent took part, bool `[*B]`.
          weight: Weights of the losses, `[*B]`, 0 where not active.
          shares: Weights of the outputs in a value, `[K]`.
          scale: Parameters of the value loss.
          hparams: Hyper-parameters of the optimiser, prepared.
          lr: Step size, `[]`.

        Returns:
          Parameters, state of the optimiser, absolute errors of the values before the step, `[*B]`, and metrics; errors
          and values of an ensemble are means over its networks, and its `value_loss` is a sum.
        """
        descent, mask = transformation(self.optimiser, hparams, lr), active.astype(jnp.float32)
        target = jax.lax.stop_gradient(target)
        if self.branches is not None:
            target = Target(*(leaf[..., None, :, :] for leaf in target))

        def loss(params: Params) -> tuple[jax.Array, jax.Array]:
            outputs = self.taken(params, inputs, action, active.ndim)
            by_head = self.loss.loss(outputs, target.atoms, target.probabilities, scale)
            by_step = self.over_branches(mixture_values(by_head, shares))
            total = jnp.sum(by_step * weight) / jnp.maximum(jnp.sum(mask), 1)
            return total, self.value(outputs, shares, scale)

        (total, value), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, optimiser = descent.update(gradient, optimiser, params)
        expected = mixture_values(value_losses.expected(target.atoms, target.probabilities), shares)
        error, value = self.over_branches(jnp.abs(expected - value)), self.over_branches(value)
        if self.num_members is not None:
            error, value = jnp.mean(error, axis=0), jnp.mean(value, axis=0)
        metrics = {
            "value_loss": total,
            "q": weighted_mean(value, mask),
            "q_error": weighted_mean(error, mask),
            "grad_norm": optax.tree.norm(gradient),
        }
        return optax.apply_updates(params, updates), optimiser, error, metrics


def window_atoms(batch: Window, reward: jax.Array, atoms: jax.Array, nodes: Nodes, time_limits: str) -> jax.Array:
    """Atoms of the targets of the first step of each window, `[B, *A, K, M]`.

    Args:
      batch: Windows.
      reward: Rewards of their steps, `[B, n, *A]`.
      atoms: Atoms after their last steps, `[B, *A, K, M]`.
      nodes: Exponentials of the discount.
      time_limits: Treatment of time limits, as in `RolloutConfig`.
    """
    ended = batch.terminated | batch.truncated if time_limits == "terminal" else batch.terminated
    return n_step_targets(reward, batch.counts, ended, atoms, nodes.rates, nodes.sizes)


def row_errors(error: jax.Array, active: jax.Array) -> jax.Array:
    """Mean error of the active agents of each row, `[B]`, from errors `[B, *A]`."""
    mask, agents = active.astype(jnp.float32), tuple(range(1, active.ndim))
    return jnp.sum(error * mask, axis=agents) / jnp.maximum(jnp.sum(mask, axis=agents), 1)


def prepare_discount(
    discount: DiscountLike,
    heads: Literal["single", "own", "joint"],
    num_heads: int,
    episode_length: int,
    num_settings: int | None = None,
    mixtures: str = "heads='joint' or heads='own'",
) -> Prepared:
    """Discount resolved for one episode, as a mixture of `num_heads` exponentials.

    Warns where their curve differs from that of the discount by more than 1e-3 within an episode.

    Args:
      discount: Number, string, discount or stack of discounts, as in `jaxrl.discounts.parsing.prepare`.
      heads: Heads of the network; "single" takes an exponential discount.
      num_heads: Number of exponentials, 1 where `heads` is "single".
      episode_length: Time limit of episodes, in steps.
      num_settings: Size of a stack, as in `jaxrl.discounts.parsing.prepare`.
      mixtures: Settings for other discounts than exponential ones, for error messages.

    Raises:
      ValueError: The discount is not a mixture of exponentials, or not one exponential where `heads` is "single";
        or it is traced, and has more exponentials than there are heads.
    """
    name, horizon = discount_name(discount), max(1, min(episode_length, _LONGEST))
    prepared = prepare(discount, horizon, num_settings, episode_length)
    rates, lags = prepared.rates, prepared.lags
    if rates is None or (lags is not None and (not is_concrete(lags) or np.any(lags))):
        raise UserValueError(
            "discount must be a mixture of exponentials, because values bootstrap, and "
            f"{name} is not; use the exponential, quasi-hyperbolic, hyperbolic or Beta-weighted family"
        )
    if heads == "single" and np.shape(rates)[-1] != 1:
        raise UserValueError(f"heads='single' takes an exponential discount, which {name} is not; use {mixtures}")
    if not is_concrete(prepared) and np.shape(rates)[-1] > num_heads:
        raise UserValueError(
            f"num_heads={num_heads} takes a traced discount of at most {num_heads} exponentials, got one of "
            f"{np.shape(rates)[-1]}; prepare it before tracing, by algo.prepare(hparams), or use more num_heads"
        )
    mixture = with_nodes(prepared, num_heads, horizon, name)
    if not isinstance(discount, Prepared) and is_concrete(mixture):
        _warn_of_a_shortfall(mixture, num_heads, episode_length, name)
    return mixture


def _warn_of_a_shortfall(mixture: Prepared, num_heads: int, episode_length: int, name: str) -> None:
    assert mixture.form is not None  # a discount with a mixture has a form
    longest = min(episode_length, LONGEST_EPISODE)
    # Every delay at first, then a thousand: beyond the horizon both curves are flat.
    delays = np.unique(np.append(np.arange(min(longest, _LONGEST) + 1), np.geomspace(1, longest, 1000).astype(int)))
    curves = np.reshape(to_host(mixture.form).broadcast().curve(longest)[..., delays], (-1, len(delays)))
    nodes = zip(*(np.reshape(to_host(leaf), (-1, num_heads)) for leaf in (mixture.rates, mixture.weights)), strict=True)
    errors = [
        np.abs(curve - rates ** delays[:, None] @ weights)
        for curve, (rates, weights) in zip(curves, nodes, strict=True)
    ]
    worst = int(np.argmax(np.max(errors, axis=1)))
    if np.max(errors[worst]) > _SHORTFALL:
        which = name if len(errors) == 1 else f"the discount of setting {worst}"
        warnings.warn(
            f"the {num_heads} exponentials of the heads differ from {which} by up to {np.max(errors[worst]):.2g}, at a "
            f"delay of {delays[np.argmax(errors[worst])]:,} of the {longest:,} steps of an episode; more num_heads "
            f"reduce the difference",
            RuntimeWarning,
            stacklevel=2,
        )
