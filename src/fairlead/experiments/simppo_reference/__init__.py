"""Our PPO and stable-baselines3's in a world whose best return is known."""
