"""Who takes over from a policy that raised: nothing that was accepted is lost, and the log says who decides now."""

import numpy as np

from fairlead.engine.core.controller import Controller
from fairlead.engine.core.site import make_site
from fairlead.errors import PolicyError
from fairlead.policy import Policy, make_policy

DISPATCHER = "fifo"
"""Instead of a dispatcher: requests are still served, if not well."""

SCALER = "hpa"
"""Instead of a scaler. It begins with the number of replicas that the best provided function has, so that the change
takes none away under load; a rule that goes by utilisation lets go of what is too many."""


def fall_back(controller: Controller, error: PolicyError) -> tuple[str, Policy]:
    """Put another policy in the place of the one that raised; its name, and the policy itself.

    A replay must come to the same: this depends on the controller's state and on nothing else.
    """
    decisions, site = controller.decisions, make_site(controller.scenario)
    if decisions.is_scaler(error.policy):
        most = max((found.target for found in controller.replicas.sets.values()), default=1)
        scaler = make_policy(SCALER, {"initial": max(1, most)})
        scaler.prepare(site, np.random.default_rng(0))
        decisions.replace_scaler(scaler, SCALER)
        return SCALER, scaler
    dispatcher = make_policy(DISPATCHER)
    dispatcher.prepare(site, np.random.default_rng(0))
    decisions.replace(dispatcher, DISPATCHER)
    return DISPATCHER, dispatcher
