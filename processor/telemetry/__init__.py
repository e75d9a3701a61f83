"""What may be seen from outside: metrics and logs, without content."""
