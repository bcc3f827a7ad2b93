"""How a virtual cluster behaves: times of messages, starts and ends, and how often things go wrong by themselves."""

from dataclasses import dataclass

Span = tuple[float, float]
"""The least and the most of a time in seconds; drawn uniformly in between."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Times and shares of a virtual cluster.

    Args:
        delay_s: Of a message, each way. Messages of one connection stay in order, those of different ones need not.
        start_s: From the order to start an instance until it is ready, besides its `setup`.
        overhead_s: Of a batch, besides what its function sleeps.
        end_s: From the order to end an idle instance until it has ended.
        kill_s: The same, where it ends by force.
        dial_s: From the instant at which a node can dial its gateway until the gateway has it.
        silence_s: A node that is not heard of for this long is given up by the gateway.
        keep_s: How long instances wait for the next gateway, where they are kept.
        spikes: Share of messages that take `spike_s` longer.
        spike_s: See `spikes`.
        start_failures: Share of starts that fail.
        deaths: Share of batches during which their instance dies.
        slow_ends: Share of ends that take `slow_end_s` longer.
        slow_end_s: See `slow_ends`.
        resize_refusals: Share of resizes that are refused.
        duplicates: Share of reports that come twice.
        keeps: Whether instances survive their gateway.
        resizes: Whether instances can be resized.
    """

    delay_s: Span = (0.0002, 0.002)
    start_s: Span = (0.05, 0.4)
    overhead_s: Span = (0.0001, 0.001)
    end_s: Span = (0.002, 0.05)
    kill_s: Span = (0.001, 0.02)
    dial_s: Span = (0.01, 0.1)
    silence_s: float = 2.0
    keep_s: float = 60.0
    spikes: float = 0.0
    spike_s: Span = (0.05, 1.0)
    start_failures: float = 0.0
    deaths: float = 0.0
    slow_ends: float = 0.0
    slow_end_s: Span = (1.0, 5.0)
    resize_refusals: float = 0.0
    duplicates: float = 0.0
    keeps: bool = False
    resizes: bool = True
