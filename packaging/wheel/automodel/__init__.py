"""The command `automodel`, a native program; no Python runs once it is started."""
