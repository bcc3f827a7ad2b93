"""Workload A through simfaas, in an environment of its own: prints one line of JSON. Imports nothing of ours."""

import json
import sys
from time import process_time

from simfaas.ServerlessSimulator import ServerlessSimulator


def main() -> None:
    requests, rate_rps, warm_s, cold_s, keep_alive_s, instances = (float(word) for word in sys.argv[1:])
    simulator = ServerlessSimulator(
        arrival_rate=rate_rps,
        warm_service_rate=1 / warm_s,
        cold_service_rate=1 / cold_s,
        expiration_threshold=keep_alive_s,
        max_time=requests / rate_rps,
        maximum_concurrency=int(instances),
    )
    before = process_time()
    simulator.generate_trace(debug_print=False, progress=False)
    cpu_s = process_time() - before
    found = {
        "cpu_s": cpu_s,
        "requests": simulator.total_req_count,
        "cold_starts": simulator.total_cold_count,
        "rejected": simulator.total_reject_count,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
