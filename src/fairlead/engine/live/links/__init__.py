"""Links between a gateway, its node agents and their instances: the same frames over every kind of stream."""
