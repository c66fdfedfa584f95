"""Many tasks on a Ray cluster: whatever is cut into independent pieces is handed to `spread`."""

from scansnap.cluster.connection import Cluster, import_ray
from scansnap.cluster.tasks import Failure, spread

__all__ = ["Cluster", "Failure", "import_ray", "spread"]
