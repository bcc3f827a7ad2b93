"""One function more: reward drop and retraining, from 5 to 110 functions."""
