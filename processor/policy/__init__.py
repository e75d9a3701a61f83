"""Policy: what each tool is, may be given, and costs to be wrong about. Pure decisions."""
