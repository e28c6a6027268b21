"""How each resource type is made, changed and taken away. A type that is not here does not exist: templates that use it are refused."""

from . import compute, eks, iam, network, storage
from .base import KINDS, Context, Kind, Props

__all__ = ["KINDS", "Context", "Kind", "Props", "compute", "eks", "iam", "network", "storage"]
