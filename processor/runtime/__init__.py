"""The exactly-once loop: consume, fold, commit outputs and position in one transaction, restore."""
