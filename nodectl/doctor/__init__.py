"""The findings of `nodectl doctor`, by subject."""
