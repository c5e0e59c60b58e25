"""Order check (task=order_check) as GHAR plays it: the episode, the teacher, the baselines and their numbers."""
