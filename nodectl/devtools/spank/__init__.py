"""The bench for authors of SPANK plugins: looking at a plugin without running it, and trying it in every context."""
