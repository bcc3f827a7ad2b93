"""What ESG's configuration search costs: steps and time, by how tight the SLO is."""
