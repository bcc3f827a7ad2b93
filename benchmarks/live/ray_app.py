"""The same stages on Ray Serve; run with the Python of an environment that has it.

Set-up `default`: what `@serve.deployment` and `@serve.batch` do unless told otherwise, and worker processes at the low
priority that Ray gives them. Set-up `256`: up to 256 requests at a replica at once, batches of eight, a wait of 2 ms,
workers at normal priority. Set-up `throughput`: the same, with the settings that Ray Serve calls optimised for
throughput, and a wait of 20 ms. A batch is formed when its wait is over, also while the one before it still runs: with
2 ms it has two or three requests, with 20 ms eight, and twice as many are answered. Set-up `shed`: optimised for
throughput, up to 12 requests at a replica, four that wait for a place there, a wait of 10 ms, and a refusal of all
others; of the eight such set-ups that were tried, the one with most answers within 50 ms at overload. The access log
and telemetry are off in all, which can only help.

With `--address`, the stages run in that cluster instead of one of their own.
"""

import argparse
import asyncio
import os
import signal
import tempfile
from typing import Any

CPUS = 4
MANY: dict[str, object] = {"max_ongoing_requests": 256}
FEW: dict[str, object] = {
    "max_ongoing_requests": 12,
    "max_queued_requests": 4,
    # By default a request that finds no place at a replica tries again after 25 ms, then 50, up to 500.
    "request_router_config": {"initial_backoff_s": 0.001, "backoff_multiplier": 1.5, "max_backoff_s": 0.004},
}
SETUPS: dict[str, tuple[dict[str, object], dict[str, object]]] = {  # options of a deployment, and of its batches
    "default": ({}, {}),
    "256": (MANY, {"max_batch_size": 8, "batch_wait_timeout_s": 0.002}),
    "throughput": (MANY, {"max_batch_size": 8, "batch_wait_timeout_s": 0.020}),
    "shed": (FEW, {"max_batch_size": 8, "batch_wait_timeout_s": 0.010}),
}


def environment(setup: str) -> dict[str, str]:
    """What has to be in the environment before Ray is imported."""
    # Without authentication, which on one machine would only cost time, and leave a token in the home folder.
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    if setup in ("throughput", "shed"):
        # Replicas' own ports are only for a proxy in front that is not Ray's, and would be open to other machines.
        quiet |= {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0"}
    return quiet | ({"RAY_worker_niceness": "0"} if setup != "default" else {})


def build(serve: Any, kind: str, setup: str) -> Any:
    """The application of this kind, bound."""
    options, batching = SETUPS[setup]

    @serve.deployment(**options)
    class Noop:
        async def __call__(self, request: Any) -> dict[str, object]:
            return {"output": (await request.json())["input"]}

    @serve.deployment(**options)
    class Last:
        async def __call__(self, value: object) -> object:
            return value

    @serve.deployment(**options)
    class Middle:
        def __init__(self, following: Any) -> None:
            self.following = following

        async def __call__(self, value: object) -> object:
            return await self.following.remote(value)

    @serve.deployment(**options)
    class First:
        def __init__(self, following: Any) -> None:
            self.following = following

        async def __call__(self, request: Any) -> dict[str, object]:
            return {"output": await self.following.remote((await request.json())["input"])}

    @serve.deployment(**options)
    class Batched:
        @serve.batch(**batching)
        async def run(self, values: list[object]) -> list[object]:
            await asyncio.sleep(0.008 + 0.002 * len(values))
            return values

        async def __call__(self, request: Any) -> dict[str, object]:
            return {"output": await self.run((await request.json())["input"])}

    if kind == "noop3":
        return First.bind(Middle.bind(Last.bind()))
    return {"noop": Noop, "batched": Batched}[kind].bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("noop", "noop3", "batched"))
    parser.add_argument("--setup", choices=SETUPS, default="default")
    parser.add_argument("--address", help="of a cluster that runs already")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    os.environ.update(environment(options.setup))

    import ray  # noqa: PLC0415 - reads the environment when it is imported
    from ray import serve  # noqa: PLC0415

    stop = {signal.SIGTERM, signal.SIGINT}
    with tempfile.TemporaryDirectory(prefix="fl-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if options.address is None:
            # A replica books one CPU; three of them have to fit, on two cores too.
            ray.init(address="local", num_cpus=CPUS, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        else:  # its workers have the raylets' environment, and this on top
            variables = environment(options.setup)
            ray.init(address=options.address, log_to_driver=False, runtime_env={"env_vars": variables})
        try:
            serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": options.port})
            serve.run(
                build(serve, options.kind, options.setup),
                name="bench",
                route_prefix="/",
                logging_config={"enable_access_log": False, "log_level": "ERROR"},
            )
            signal.pthread_sigmask(signal.SIG_BLOCK, stop)
            print(f"Serving {options.kind} at http://127.0.0.1:{options.port}", flush=True)
            signal.sigwait(stop)
        finally:
            serve.shutdown()
            ray.shutdown()


if __name__ == "__main__":
    main()
