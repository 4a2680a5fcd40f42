"""A feature: tools for authors of plugins: trial runs, checks, simulated workloads. Run by commands."""
