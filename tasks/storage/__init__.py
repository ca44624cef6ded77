"""What is written so that it is whole or absent: folders, checkpoints, rows, tables; what may go; where a test makes a
run die."""
