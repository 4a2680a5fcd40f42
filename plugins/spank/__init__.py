"""SPANK plugins written in Python."""
