"""Agent programs that ask the policy for turns: an address for each episode, and the process behind it."""
