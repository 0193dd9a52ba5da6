"""Least squares and the logistic posterior, slowly, in float64, from all features so far."""

import math

import numpy as np


def lin_ucb(contexts, table, exploration=1.0, ridge=1.0):
    """LinUCB that solves its least squares again at each pull.

    Returns:
      Actions `[T]`, margins of the best arm over the next `[T]`, estimate `[d]` and inverse `[d, d]`.
    """
    size = contexts.shape[-1]
    gram, moment = ridge * np.eye(size), np.zeros(size)
    actions, leads = [], []
    for features, rewards in zip(contexts, table, strict=True):
        inverse = np.linalg.inv(gram)
        width = np.sqrt(np.einsum("ki,ij,kj->k", features, inverse, features))
        index = features @ inverse @ moment + exploration * width
        action = int(np.argmax(index))
        actions.append(action)
        leads.append(np.diff(np.sort(index)[-2:])[0])
        gram += np.outer(features[action], features[action])
        moment += rewards[action] * features[action]
    inverse = np.linalg.inv(gram)
    return np.array(actions), np.array(leads), inverse @ moment, inverse


def least_squares(features, rewards, ridge=1.0):
    """The posterior of coefficients after features `[T, d]` and rewards `[T]`: mean and covariance."""
    inverse = np.linalg.inv(ridge * np.eye(features.shape[1]) + features.T @ features)
    return inverse @ (features.T @ rewards), inverse


def laplace(features, rewards, ridge=1.0):
    """A normal approximation of logistic coefficients, put at the mode after every reward: mean and covariance."""
    mean = np.zeros(features.shape[1])
    precision = ridge * np.eye(len(mean))
    for x, reward in zip(features, rewards, strict=True):
        direction = np.linalg.solve(precision, x)
        low, high = -1.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if middle < reward - sigmoid(x @ (mean + middle * direction)):
                low = middle
            else:
                high = middle
        mean = mean + low * direction
        chance = sigmoid(x @ mean)
        precision = precision + chance * (1 - chance) * np.outer(x, x)
    return mean, np.linalg.inv(precision)


def mode(features, rewards, ridge=1.0):
    """The mode of the exact posterior of logistic coefficients, by Newton's method."""
    theta = np.zeros(features.shape[1])
    for _ in range(50):
        chances = 1 / (1 + np.exp(-features @ theta))
        slope = features.T @ (rewards - chances) - ridge * theta
        curvature = ridge * np.eye(len(theta)) + (features.T * (chances * (1 - chances))) @ features
        theta = theta + np.linalg.solve(curvature, slope)
    return theta


def sigmoid(value):
    return 1 / (1 + math.exp(-value))
