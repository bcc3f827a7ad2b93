"""Why requests were refused or dropped, as a closed set of codes.

Policies, the runtime and the gateway give a reason as a sentence for people, often with numbers in it. A label of a
metric must be stable and one of few, so each sentence is brought to a code by the phrase it contains.
"""

from collections.abc import Mapping

from fairlead.engine.live.values import Ending

CODES: Mapping[str, str] = {
    "inbox_full": "the gateway has no place for another open request",
    "held_at_zero": "an operator holds a function of the workflow at 0 instances",
    "cannot_start": "instances of a function fail to start",
    "deadline_passed": "the deadline passed while the request waited",
    "deadline_unreachable": "the request could no longer be answered in time",
    "deadline_too_short": "the request would be late even on idle instances",
    "overloaded": "the request would be late because of those ahead of it",
    "no_promise": "no plan meets both the deadline and the budget",
    "queue_full": "the policy's limit of waiting invocations is reached",
    "unplaceable": "no node can run all functions of the workflow",
    "other": "the policy gave another reason, or none",
}

_PHRASES = (  # the first that occurs counts
    ("held at 0 instances", "held_at_zero"),
    (" cannot start: ", "cannot_start"),
    ("its deadline passed", "deadline_passed"),
    ("even with nothing ahead of it", "deadline_too_short"),
    ("too much is ahead of it", "overloaded"),
    ("more requests than the instances", "overloaded"),
    ("by the recent waits of the stages ahead", "overloaded"),
    ("cannot promise", "no_promise"),
    ("invocations wait already", "queue_full"),
    ("no worker can run", "unplaceable"),
    ("no node can run", "unplaceable"),
    ("no kind of node", "unplaceable"),
    ("cannot be met any more", "deadline_unreachable"),
    ("can no longer be answered in time", "deadline_unreachable"),
    ("cannot be in time any more", "deadline_unreachable"),
    ("no configuration is safely in time", "deadline_unreachable"),
    ("it cannot be answered in time: it takes at least", "deadline_too_short"),
    ("what was admitted before it takes all", "overloaded"),
    ("has had its share of a cluster", "overloaded"),
    ("all is busy until it would", "overloaded"),
    ("times as much as a new request", "overloaded"),
    ("can no longer be answered within its budget", "no_promise"),
)


def code_of(ending: Ending) -> str:
    """The code of a request that was rejected or dropped."""
    code = code_of_sentence(ending.reason or "")
    if ending.outcome == "dropped" and ending.end >= ending.deadline and code not in ("held_at_zero", "cannot_start"):
        return "deadline_passed"
    return code


def code_of_sentence(reason: str) -> str:
    """The code of a reason that was given as a sentence."""
    return next((code for phrase, code in _PHRASES if phrase in reason), "other")
