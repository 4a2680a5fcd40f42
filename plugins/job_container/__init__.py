"""Job container plugins: what of the machine a job has to itself."""
