"""Task plugins: binding, limits and scripts of a step's tasks."""
