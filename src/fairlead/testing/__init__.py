"""Conformance suites for policies, independent checks of records, and builders; for our tests and for outsiders'."""

from fairlead.testing.builders import (
    Declared,
    Waits,
    cluster,
    decisions,
    declared,
    prepared,
    scenario,
    site_of,
    view_of,
)
from fairlead.testing.checkers import check_accounts, check_capacity, check_order
from fairlead.testing.conformance import (
    DISPATCHER_CHECKS,
    SCALER_CHECKS,
    Check,
    MakePolicy,
    check_dispatcher,
    check_scaler,
    maker,
)
from fairlead.testing.frozen import check_frozen, check_immutable
from fairlead.testing.scenarios import SCENARIOS
from fairlead.testing.slices import mig_fits

__all__ = [
    "DISPATCHER_CHECKS",
    "SCALER_CHECKS",
    "SCENARIOS",
    "Check",
    "Declared",
    "MakePolicy",
    "Waits",
    "check_accounts",
    "check_capacity",
    "check_dispatcher",
    "check_frozen",
    "check_immutable",
    "check_order",
    "check_scaler",
    "cluster",
    "decisions",
    "declared",
    "maker",
    "mig_fits",
    "prepared",
    "scenario",
    "site_of",
    "view_of",
]
