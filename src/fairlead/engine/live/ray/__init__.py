"""The Ray back end: Ray owns membership, resources and life cycle; data goes over Fairlead's own links.

`provider` is the gateway's part and `driver` a process of its own that speaks to Ray; `keeper` is the actor that
reserves a node's share and keeps `agent`, the same agent that other machines run, alive there.
"""
