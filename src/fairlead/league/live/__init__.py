"""The league on real processes: every dispatcher served in turn, loaded alike, and predicted.

The parts that experiments use:

    app = LiveApp(path, env=None)      # a folder, app.py or app.py:name; served with the variables `env`
    app.name, app.workflows, app.slo_s, app.manifest, app.measured, app.reload()

    capacity_rps = measure_capacity(app, seconds=5.0)

    cell = run_cell(app, policy, rate_rps, seconds, seed, *, parameters=None, slo_scale=1.0, serve_options=(),
                    warm_up_s=2.0, progress=None) -> LiveCell
    cell.live                          # Figures: requests, answers, in_time, share, goodput_rps, p50_s, p99_s, cost_usd
    cell.live.by_workflow[name]        # Figures of one workflow
    cell.decisions                     # count, mean_s, p99_s
    cell.gateway_cpu_s, cell.instances_cpu_s, cell.others, cell.lag_p99_s, cell.marks, cell.refused, cell.errors

    figures = predict_cell(app, policy, rate_rps, seconds, seed, *, host, parameters=None, slo_scale=1.0,
                           warm_up_s=2.0) -> Figures

`host` is `read_machine(machine_file()).host` (`fairlead.profile.host`), or None for a machine that was not measured.
Objectives that depend on the environment, as those of `examples/apps/esg`, are set by `env` of the app.
"""

from fairlead.league.live.app import LiveApp
from fairlead.league.live.cells import measure_capacity, predict_cell, run_cell
from fairlead.league.live.figures import Decisions, Figures, LiveCell

__all__ = ["Decisions", "Figures", "LiveApp", "LiveCell", "measure_capacity", "predict_cell", "run_cell"]
