"""Answers in time, or a refusal at once: the policy that the live runtime uses unless told otherwise."""
