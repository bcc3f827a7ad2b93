"""ESG and its rivals on workflows with forks, joins and branches."""
