"""A film of a crowd for browsers."""

from envs.crowd.player.page import player

__all__ = ["player"]
