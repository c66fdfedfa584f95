"""Run independent tasks on a Ray cluster with `spread`."""

from scansnap.cluster.connection import Cluster, import_ray
from scansnap.cluster.tasks import Failure, spread

__all__ = ["Cluster", "Failure", "import_ray", "spread"]
