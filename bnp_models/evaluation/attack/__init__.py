"""Attack on synthetic files by an intruder who knows all records but one."""
