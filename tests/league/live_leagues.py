"""Small live leagues whose figures can be checked by hand."""

from fairlead.league.live.document import Cell, Entrant, League
from fairlead.league.live.figures import Decisions, Figures, LiveCell


def figures(share: float, *, requests: int = 1000, p50_s: float | None = 0.01, p99_s: float | None = 0.02, **more):
    """Of requests that were all answered, this share of them in time."""
    in_time = round(share * requests)
    return Figures(
        requests=requests,
        answers=requests,
        in_time=in_time,
        goodput_rps=in_time / 10,
        p50_s=p50_s,
        p99_s=p99_s,
        cost_usd=0.001,
        **more,
    )


def live_cell(app: str, policy: str, live: Figures, *, rate_rps: float = 100.0, marks: tuple[str, ...] = ()):
    return LiveCell(
        app=app,
        policy=policy,
        rate_rps=rate_rps,
        seconds=10.0,
        seed=0,
        warm_up_s=2.0,
        live=live,
        decisions=Decisions(count=100, mean_s=1e-4, p99_s=2e-4),
        gateway_cpu_s=1.5,
        instances_cpu_s=3.0,
        generator_cpu=0.1,
        others=0.0,
        lag_p99_s=0.001,
        marks=marks,
    )


def cell(policy: str, live: float, predicted: float, *, app: str = "shop", load: float = 1.0, **more):
    return Cell(
        app=app,
        load=load,
        policy=policy,
        live=live_cell(app, policy, figures(live, **more)),
        predicted=figures(predicted),
    )


def league(*cells: Cell) -> League:
    names = dict.fromkeys(cell.app for cell in cells)
    apps = tuple(Entrant(name=name, path=f"{name}.py", capacity_rps=100.0) for name in names)
    return League(seconds=10.0, seed=0, apps=apps, cells=cells)
