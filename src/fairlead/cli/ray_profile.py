"""`fairlead profile --backend ray`: an app on the nodes of a Ray cluster, and the links to these."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import typer
import uvloop

from fairlead.app.describe import take_snapshot
from fairlead.app.snapshot import Snapshot
from fairlead.calibrate.links import NOTHING, measure_links
from fairlead.calibrate.measure import small_app
from fairlead.cli.progress import ShareProgress
from fairlead.cli.ray import ray_listen, ray_order, shared_certificate
from fairlead.engine.live.links.address import bound_address, listen_on, parse_address
from fairlead.engine.live.measuring import Effort
from fairlead.engine.live.ray.measuring import Surveyed, measure_on_ray
from fairlead.engine.live.ray.provider import RayError
from fairlead.errors import FairleadError
from fairlead.profile import Host, LinkedNode

_EFFORT = Effort(budget_s=3.0, cold_starts=1)  # for the function that does nothing


def measure_cluster(
    snapshot: Snapshot, effort: Effort, functions: Sequence[str] | None, address: str | None, is_quiet: bool
) -> Surveyed:
    """Measure on one node of each kind of a Ray cluster; points say of which kind they are."""
    order = ray_order(address, [], "node", None)
    said: list[str] = []
    with TemporaryDirectory() as folder, listen_on(parse_address(ray_listen(order, 0)), "--address") as listening:
        if not bound_address(listening).is_local:  # as `fairlead serve` does
            certificate, key = shared_certificate(Path(folder))
            order = msgspec.structs.replace(order, certfile=certificate, keyfile=key)
        try:
            with ShareProgress(f"Measuring {snapshot.manifest.name}", is_quiet=is_quiet) as progress:
                measuring = measure_on_ray(
                    order, listening, snapshot, Path(folder), effort, functions, progress.reach, said.append
                )
                return uvloop.run(measuring)
        except RayError:
            raise
        except FairleadError:
            for line in said:
                typer.echo(line, err=True)
            raise


def serve_options(address: str | None) -> tuple[str, ...]:
    """The options of `fairlead serve` for the same cluster, with a free port for its agents."""
    order = ray_order(address, [], "node", None)
    return ("--backend", "ray", "--address", order.address, "--agents-listen", ray_listen(order, 0))


def linked_nodes(host: Host, address: str | None, is_quiet: bool) -> tuple[LinkedNode, ...]:
    """Measure the links to the nodes of a Ray cluster with a small app of Fairlead's own.

    Raises:
        ServingError: It cannot be served there.
    """
    order = ray_order(address, [], "node", None)
    here = parse_address(ray_listen(order, 0)).host
    with TemporaryDirectory(prefix="fairlead-") as name:
        app = small_app(Path(name))
        found = measure_cluster(take_snapshot(str(app)), _EFFORT, [NOTHING], address, is_quiet)
        nothing = found.measurement.profiles.functions[NOTHING]
        return measure_links(app, Path(name), serve_options(address), host, found.nodes, found.hosts, here, nothing)
