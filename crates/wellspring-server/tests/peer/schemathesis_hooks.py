"""Ids that are there, so that the answers to requests which work are checked too; and a tally of
what every operation answered.

What is generated to be wrong stays as it is.
"""

import itertools
import json
import os

import schemathesis

RUNS = json.loads(os.environ["WELLSPRING_RUNS"])
TALLY = os.environ["WELLSPRING_TALLY"]
calls = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    # Scenarios take their ids from earlier responses.
    if case.meta and (case.meta.phase.name.name == "STATEFUL" or not case.meta.generation.mode.is_positive):
        return
    label = case.operation.label
    if "{" not in label or next(calls) % 2:
        return
    kind = {
        "DELETE /v1/runs/{run}": "done",
        "POST /v1/runs/{run}/answers": "asks",
        "POST /v1/runs/{run}/tool-results": "paints",
        "POST /v1/runs/{run}/input": "asks",
        "POST /v1/runs/{run}/cancel": "asks",
    }.get(label)
    if kind and not RUNS[kind]:
        return
    # Each run is changed only once.
    found = RUNS[kind].pop() if kind else RUNS["stays"][0]
    case.path_parameters = {
        name: {"run": found["run"], "thread": found["thread"], "agent": "agent"}.get(name, value)
        for name, value in (case.path_parameters or {}).items()
    }
    if label == "POST /v1/runs/{run}/answers":
        case.body = {"question": 0, "answer": {"approve": {}}}
    if label == "POST /v1/runs/{run}/tool-results":
        case.body = {"call": 0, "output": "blue"}
    if label == "POST /ag-ui/{agent}":
        message = {"id": "m", "role": "user", "content": "go"}
        name = f"t{next(calls)}"
        case.body = {"threadId": name, "runId": name, "messages": [message]}
    if label == "POST /ai-sdk/{agent}":
        message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "go"}]}
        case.body = {"id": f"c{next(calls)}", "messages": [message]}


@schemathesis.hook
def after_call(context, case, response):
    with open(TALLY, "a") as tally:
        tally.write(f"{response.status_code} {case.operation.label}\n")
