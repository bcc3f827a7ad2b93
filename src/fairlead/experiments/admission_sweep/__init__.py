"""Admission control under three kinds of arrival, several sample sizes, and overload."""
