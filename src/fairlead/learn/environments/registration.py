"""The environments by name: `gymnasium.make("fairlead/Placement-v0")`.

Importing `fairlead.learn.environments` calls `register`.
"""

from gymnasium.envs.registration import register as _register
from gymnasium.envs.registration import registry

_HOME = "fairlead.learn.environments"
_ENVIRONMENTS = {
    "fairlead/Placement-v0": (f"{_HOME}.placement:PlacementEnv", f"{_HOME}.placement:PlacementVectorEnv"),
    "fairlead/Migration-v0": (f"{_HOME}.migration:MigrationEnv", None),
    "fairlead/Reference-v0": (f"{_HOME}.reference:ReferenceEnv", None),
}


def register() -> None:
    """Adds the environments for one agent to Gymnasium's registry; those that are there already stay as they are."""
    for name, (single, vector) in _ENVIRONMENTS.items():
        if name not in registry:
            _register(id=name, entry_point=single, vector_entry_point=vector)
