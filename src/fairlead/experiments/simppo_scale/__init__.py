"""How the time of training and serving grows with the number of functions."""
