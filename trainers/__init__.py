"""SFT warm-up, multi-agent PPO, credit assignment and checkpoints."""
