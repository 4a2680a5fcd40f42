"""Process tracking plugins: which processes belong to a step."""
