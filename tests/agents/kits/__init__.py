"""Kits: for each library the agents that the contract (test_contract.py) is tried with.

A kit is a module with a function `agent(kind, url)`: an agent of the library, made anew, whose model is the server at
`url` (openai_server.py). Both kinds have the instructions "Be short.".

    clerk      has the tools `pay` and `weather` of deeds.py; `pay` needs approval, declared by the library's own means
    reporter   has no tools, and gives a `Report` of deeds.py

A kit is imported in the processes of the contract only, so that the libraries never meet.
"""

KITS: dict[str, dict[str, str]] = {
    "agent_framework": {},
    "langchain": {},
    "langchain_bare": {
        "parallel": "a superstep of a graph is one step: what is done side by side is done again together",
        "handoff": "the calls of the model cannot be seen without the middleware",
        "key": "the calls of tools cannot be seen without the middleware",
    },
    "openai_agents": {},
    "pydantic_ai": {},
}
"""The kits, and what cannot be done with their libraries: errands of the contract, with the reason, as in the docs."""
