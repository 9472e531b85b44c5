"""The HTTP API, under `/api/v1`.

An operation is a function with a `ApiCall` and an answer. The types of both are structs: requests are
parsed into them, answers are made from them, and the OpenAPI document is computed from them, so that
none of the three can disagree with the others.

    operation.py    what an operation is; how it is found by method and path, called and answered
    repetition.py   calls that are repeated with an idempotency key
    openapi.py      the document
    documents.py    the structs of answers
    runs.py         runs seen from outside: lists, documents, checkpoints, state, events
    run_changes.py  runs that are started, cancelled, forked, moved back, retried
    differences.py  what differs between two checkpoints
    pruning.py      what is deleted
    decisions.py    what people decided
    streams.py      event streams
    requests.py     open requests, and their responses
    service.py      workflows, workers, metrics, and who the caller is
"""
