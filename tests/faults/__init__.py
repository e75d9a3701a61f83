"""Faults on real servers: kills, freezes, cuts, surgery and rogues, each run ended by one oracle."""
