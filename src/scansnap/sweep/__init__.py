"""Many runs, planned into batched groups: on this machine or on a Ray cluster, into one store."""
