"""Language models in use: `quartet chat` in the terminal, and OpenAI's routes of `quartet serve`, /v1/chat/completions, /v1/completions and
/v1/embeddings. docs/writing.md shows each.
"""

from pipelines.config.doors import COMMANDS, PROTOCOLS

COMMANDS.add("chat", "extensions.chat.commands:chat")
PROTOCOLS.add("OpenAI", "extensions.chat.openai:OpenAI")
