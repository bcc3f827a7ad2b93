"""The five printed traces of the KaaS worked example."""
