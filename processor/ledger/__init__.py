"""The ledger: the only place where an effect is admitted, and the record of what came of it."""
