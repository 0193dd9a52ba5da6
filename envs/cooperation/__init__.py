"""Cooperation of two agents: in self-play, or with a partner whose behaviour is not observed."""
