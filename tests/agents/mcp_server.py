"""An MCP server that writes down each call it gets: mcp_server.py LEDGER [PORT]; with a port it is served over HTTP."""

from __future__ import annotations

import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

INSTRUCTIONS = "Charge every account once."

server = MCPServer("bank", instructions=INSTRUCTIONS, log_level="WARNING")


def write_down(line: str) -> None:
    """Append a line in one write: what the kernel has accepted survives the death of the process."""
    handle = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


@server.tool()
def charge(account: str, ctx: Context) -> str:
    """Charge an account."""
    meta = ctx.request_context.meta or {}
    write_down(f"{account} {meta.get('idempotency_key')}")
    return f"charged {account}"


@server.tool()
def refuse(account: str) -> str:
    """Refuse an account."""
    write_down(f"refused {account}")
    raise ToolError("the account is closed")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
