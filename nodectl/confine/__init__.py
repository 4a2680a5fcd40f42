"""How far what a step runs is confined beyond its user's rights, and programs run so.

The daemon chooses a level and compiles it; tasks, scripts and visitors apply it to themselves.
"""
