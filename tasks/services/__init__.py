"""What every service on this machine has in common: who is answered, and how much of the machine a caller gets."""
