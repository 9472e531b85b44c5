"""Group chats: participants speak one at a time, and an orchestrator chooses the next speaker."""
