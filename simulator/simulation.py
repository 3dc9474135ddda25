"""Traffic through one simulated server, or several with a router, in the order of time. Deterministic for a seed."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from simulator.answers import Answers, Deployment
from simulator.clients import Clients, OpenLoop, Send, clients_of
from simulator.compiled import compiled_answers
from simulator.errors import SimulatorError
from simulator.pools import At, Observe, Pool
from simulator.server import Admission, Server
from simulator.stages import Stage, answers_of_stages, between_stages_s, stages_of
from simulator.traffic import Traffic


def check_room(admission: Admission, traffic: Traffic) -> None:
    """Raises SimulatorError for a request that no replica could ever take: the others would wait for it without end."""
    longest = int((traffic.input_tokens + traffic.output_tokens).max(initial=0))
    needed = admission.blocks_of(longest)
    if admission.kv_blocks is not None and needed > admission.kv_blocks:
        raise SimulatorError(f"--kv_blocks {admission.kv_blocks}: a request of {longest:,} tokens needs {needed:,} of them")


def simulate(server: Server, traffic: Traffic, seed: int, observe: Observe | None = None) -> Answers:
    """Send ``traffic`` to one ``server``; ``observe`` is called with each round of responses, in the order of time."""
    return simulate_deployment(Deployment(server), traffic, clients_of(traffic), seed, observe)


def simulate_deployment(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None = None
) -> Answers:
    """Send the requests of ``traffic`` to the replicas at the times of ``clients``. ``observe`` is called with each round of
    responses of any replica, in the order of the times at which they start. Raises SimulatorError for a request that is larger
    than the KV cache.

    Where nothing is observed, and numba is installed, much work is done by the compiled twin, which gives the same bits.
    """
    check_room(deployment.server.admission, traffic)
    stages = stages_of(deployment, traffic, seed)
    if len(stages) == 1:
        can_compile = observe is None and not deployment.changes
        compiled = compiled_answers(deployment, traffic, clients, seed) if can_compile else None
        return compiled or _in_python(deployment, stages, clients, observe)
    if not isinstance(clients, OpenLoop):
        return _in_python(deployment, stages, clients, observe)
    # What an open loop sends depends on no answer, so that the replicas that prefill are done before the others begin.
    prefill, decode = stages
    first = simulate_deployment(prefill.deployment, prefill.traffic, clients, prefill.seed)
    arrivals = OpenLoop((first.last_s + between_stages_s(deployment, traffic)).tolist())
    return answers_of_stages([first, simulate_deployment(decode.deployment, decode.traffic, arrivals, decode.seed, observe)])


def simulate_in_python(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None = None
) -> Answers:
    """As ``simulate_deployment``, whatever is installed."""
    check_room(deployment.server.admission, traffic)
    return _in_python(deployment, stages_of(deployment, traffic, seed), clients, observe)


def _in_python(deployment: Deployment, stages: Sequence[Stage], clients: Clients, observe: Observe | None) -> Answers:
    """At one time the ends of answers come first, then changes of the replicas, then what is sent, then the replicas."""
    ends: list[At] = []
    pools = [Pool(stage, number, ends) for number, stage in enumerate(stages)]
    last = len(pools) - 1
    between = between_stages_s(deployment, stages[0].traffic).tolist()
    sends = [(at_s, 0, request) for at_s, request in clients.first()]
    heapify(sends)
    change = min(map(Pool.next_change, pools))
    while True:
        times = [pool.next() for pool in pools]
        soonest = min(times)
        end, send = ends[0][0] if ends else inf, sends[0][0] if sends else inf
        if soonest < min(end, change, send):
            stage = times.index(soonest)
            times[stage] = inf  # until another stage is next
            pools[stage].advance(min(end, change, send, *times), ends, observe if stage == last else None)
        elif min(end, send, soonest) == inf:
            break
        elif end <= min(change, send):
            _, stage, request = heappop(ends)
            if pools[stage].ended(request, end):
                if stage < last:
                    heappush(sends, (end + between[request], stage + 1, request))
                else:
                    _send(sends, clients.answered(end, request))
        elif change <= send:
            for request in next(pool for pool in pools if pool.next_change() == change).change():
                _send(sends, clients.failed(change, request))
            change = min(map(Pool.next_change, pools))
        else:
            _, stage, request = heappop(sends)
            if not pools[stage].send(send, request):
                _send(sends, clients.refused(send, request))
    return answers_of_stages([pool.answers() for pool in pools])


def _send(sends: list[At], following: Sequence[Send]) -> None:
    for at_s, request in following:
        heappush(sends, (at_s, 0, request))
