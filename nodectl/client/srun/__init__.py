"""What srun has beyond the options that most steps are started with. The command imports it where one is given."""
