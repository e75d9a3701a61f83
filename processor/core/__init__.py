"""The pure core: what a tool call is, when it is complete, and why it is refused.

Nothing in this room reads a clock, a random source, the environment or a socket: the outputs are a
function of the events alone, so a second reading of the same topic gives the same answers.
"""
