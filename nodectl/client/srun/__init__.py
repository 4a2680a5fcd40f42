"""Rare options of srun, which most steps do not use. The command imports the modules only where given."""
