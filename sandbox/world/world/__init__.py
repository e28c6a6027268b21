"""Puts the sandbox's parts together in one namespace and looks after them. Standard library only."""
