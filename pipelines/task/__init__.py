"""The one contract that a domain fills: learning, judging, answering."""
