"""A real Kafka and a real Postgres on this machine, from ordinary packages, for demo and tests."""

from processor.devstack.endpoints import Endpoints, PartStatus, Progress, StackStatus
from processor.devstack.stack import down, status, up

__all__ = ["Endpoints", "PartStatus", "Progress", "StackStatus", "down", "status", "up"]
