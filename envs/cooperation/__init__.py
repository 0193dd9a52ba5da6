"""Cooperation of two agents: with copies of themselves, or beside a partner whose behaviour is not observed."""
