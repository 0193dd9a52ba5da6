"""Scripted partners in plain Python: in the lever game, with the best play against them, and in foraging."""

from collections.abc import Sequence

import numpy as np

RULES = ("prefer", "alternate", "copy", "win-stay", "wait", "greedy", "random")

# A member: name of the rule, preferred lever, probability of a random lever.
Member = tuple[str, int, float]


def pulled(member: Member, history: Sequence[tuple[int, int]], payoffs: Sequence[float]) -> int:
    """The lever of a rule after a history of (other agent's, own) levers; the number of levers for none."""
    rule, preference, _ = member
    count = len(payoffs)
    if rule == "prefer":
        return preference
    if rule == "greedy":
        return max(range(count), key=lambda lever: payoffs[lever])  # the first of several best options
    if rule == "copy":
        return history[-1][0] if history and history[-1][0] < count else preference
    if rule == "wait":
        twice = len(history) > 1 and history[-1][0] == history[-2][0] < count
        return history[-1][0] if twice else count
    if not history:
        return preference
    other, own = history[-1]
    stays = rule == "win-stay" and other == own
    return own if stays else (own + 1) % count


def chances(member: Member, history: Sequence[tuple[int, int]], payoffs: Sequence[float]) -> np.ndarray:
    """Probabilities of each lever and of none, float64 `[n + 1]`."""
    count = len(payoffs)
    rate = 1.0 if member[0] == "random" else member[2]
    chance = np.append(np.full(count, rate / count), 0.0)
    if rate < 1:
        chance[pulled(member, history, payoffs)] += 1 - rate
    return chance


def best_return(
    members: Sequence[Member],
    weights: Sequence[float] | np.ndarray,
    payoffs: Sequence[float],
    curve: Sequence[float] | np.ndarray,
    history: tuple[tuple[int, int], ...] = (),
) -> float:
    """The largest expected return of any policy; `weights` are joint probabilities of member and history."""
    if len(history) == len(curve):
        return 0.0
    count = len(payoffs)
    joint = np.array([w * chances(m, history, payoffs) for m, w in zip(members, weights, strict=True)])
    worth = []
    for reply in range(count + 1):
        value = curve[len(history)] * payoffs[reply] * joint[:, reply].sum() if reply < count else 0.0
        for action in range(count + 1):
            if joint[:, action].sum() > 0:
                alive = joint[:, action] > 0
                rest = [member for member, lives in zip(members, alive, strict=True) if lives]
                value += best_return(rest, joint[alive, action], payoffs, curve, (*history, (reply, action)))
        worth.append(value)
    return max(worth)


class Forager:
    """A scripted partner of foraging without chance, in plain Python.

    Args:
      member: Rule, preferred kind, and a rate that has no effect.
      kinds: Number of kinds of fruit.
      patience: Number of steps alone at a fruit that end a round.
    """

    def __init__(self, member: Member, kinds: int, patience: int):
        self.rule, self.preference, _ = member
        self.kinds, self.patience = kinds, patience
        self.own: int | None = None
        self.alone = 0
        self.other: list[int | None] = []  # kinds that the other agent was at after each step
        self.eaten = False

    def move(self, place: tuple[int, int], fruit: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Rows and columns by which it moves."""
        over = self.eaten or self.alone == self.patience
        target = self._target(place, fruit, over)
        self.own = target
        if over:
            self.alone = 0
        if target is None:
            return 0, 0
        row, column = fruit[target][0] - place[0], fruit[target][1] - place[1]
        if row == column == 0:
            return 0, 0
        return (int(np.sign(row)), 0) if abs(row) >= abs(column) else (0, int(np.sign(column)))

    def see(self, own: int | None, other: int | None, eaten: bool) -> None:
        """Record a step: the kinds that both agents are at, before a fruit grows again, and whether they ate."""
        self.alone = 0 if eaten or own is None else self.alone + 1
        self.other.append(other)
        self.eaten = eaten

    def _target(self, place: tuple[int, int], fruit: Sequence[tuple[int, int]], over: bool) -> int | None:
        if self.rule == "prefer":
            return self.preference
        if self.rule == "copy":
            seen = self.other[-1] if self.other else None
            return self.preference if seen is None else seen
        if self.rule == "wait":
            return self.other[-1] if len(self.other) > 1 and self.other[-1] == self.other[-2] else None
        if self.rule == "greedy":
            closeness = [abs(r - place[0]) + abs(c - place[1]) for r, c in fruit]
            return int(np.argmin(closeness)) if self.own is None or over else self.own
        if self.own is None:
            return self.preference
        moves_on = over and not (self.rule == "win-stay" and self.eaten)
        return (self.own + 1) % self.kinds if moves_on else self.own
