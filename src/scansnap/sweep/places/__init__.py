"""Where the groups of a sweep are made: on this machine, or on a Ray cluster (by :func:`scansnap.cluster.spread`)."""
