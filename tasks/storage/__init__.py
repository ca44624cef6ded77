"""Storage that is complete or absent: folders, checkpoints, rows, tables; and the fault points at which tests kill a
run."""
