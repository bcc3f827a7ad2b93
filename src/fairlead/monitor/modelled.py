"""What the counters of a node would show, where nothing measures them."""


def modelled(pressure: float, load: float = 0.0) -> tuple[float, ...]:
    """The seven counters of `signals.COUNTERS`, by load from outside and from within, each a share of the node.

    Ours, as nothing is published: cores are in C0 while anybody works there and mostly in C1 when nobody does; others
    on the node take cache and memory bandwidth, so that each instruction takes longer.
    """
    busy = min(1.0, 0.02 + pressure + load)
    return (
        2.0 - 0.8 * min(1.0, pressure),
        0.05 + 0.6 * busy,
        0.03 + 0.3 * busy,
        0.1 + 1.2 * min(1.0, pressure) + 0.2 * min(1.0, load),
        busy,
        0.8 * (1 - busy),
        0.2 * (1 - busy),
    )
